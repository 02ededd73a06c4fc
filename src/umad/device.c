/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * device.c - libibumad.so.3 while no management datagrams travel: there is no management device,
 * and every call answers as its man page says for that case.
 */
#include <errno.h>
#include <stddef.h>

#pragma GCC visibility push(default)
#include <infiniband/umad.h>
#pragma GCC visibility pop

int umad_init(void)
{
	return 0;
}

int umad_done(void)
{
	return 0;
}

int umad_get_cas_names(char cas[][UMAD_CA_NAME_LEN], int max)
{
	return 0;
}

int umad_get_ca_portguids(const char *ca_name, __be64 *portguids, int max)
{
	return -ENODEV;
}

int umad_get_ca(const char *ca_name, umad_ca_t *ca)
{
	return -ENODEV;
}

int umad_release_ca(umad_ca_t *ca)
{
	return -ENODEV;
}

int umad_get_port(const char *ca_name, int portnum, umad_port_t *port)
{
	return -ENODEV;
}

int umad_release_port(umad_port_t *port)
{
	return -ENODEV;
}

int umad_get_issm_path(const char *ca_name, int portnum, char path[], int max)
{
	return -ENODEV;
}

int umad_open_port(const char *ca_name, int portnum)
{
	return -ENODEV;
}

int umad_close_port(int portid)
{
	return -EINVAL;
}

int umad_send(int portid, int agentid, void *umad, int length, int timeout_ms, int retries)
{
	errno = EINVAL;
	return -EINVAL;
}

int umad_recv(int portid, void *umad, int *length, int timeout_ms)
{
	errno = EINVAL;
	return -EINVAL;
}

int umad_poll(int portid, int timeout_ms)
{
	errno = EINVAL;
	return -EINVAL;
}

int umad_get_fd(int portid)
{
	return -EINVAL;
}

int umad_register(int portid, int mgmt_class, int mgmt_version, uint8_t rmpp_version,
		  long method_mask[16 / sizeof(long)])
{
	return -EINVAL;
}

int umad_register_oui(int portid, int mgmt_class, uint8_t rmpp_version, uint8_t oui[3],
		      long method_mask[16 / sizeof(long)])
{
	return -EINVAL;
}

int umad_register2(int port_fd, struct umad_reg_attr *attr, uint32_t *agent_id)
{
	return EINVAL;
}

int umad_unregister(int portid, int agentid)
{
	return -EINVAL;
}

/* An empty list is NULL without an error. */
struct umad_device_node *umad_get_ca_device_list(void)
{
	errno = 0;
	return NULL;
}

void umad_free_ca_device_list(struct umad_device_node *head)
{
}

int umad_sort_ca_device_list(struct umad_device_node **head, size_t size)
{
	return 0;
}
