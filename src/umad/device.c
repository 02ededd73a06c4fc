/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * device.c - which devices there are, and what they and their ports look like.
 *
 * The same devices and values that the verbs show. The LID is 0 as on every RoCE port, unless
 * VERBENA_LID=1 gave one, and so is the subnet manager's; the port's GUID is the last half of GID
 * 0, as the kernel's sysfs files have it.
 */
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/limits.h"
#include "host/identity.h"
#include "umad/face.h"

#define NODE_TYPE_CA 1
#define STATE_DOWN 1
#define STATE_ACTIVE 4
#define CAPABILITY_CM 0x00010000u /* IsCommunicationManagementSupported */
#define CAPABILITY_IP_GIDS 0x04000000u
#define DEFAULT_PKEY 0xffff

_Static_assert(UMAD_CA_MAX_PORTS > VB_UMAD_PORT, "the struct has a place for the port");

int umad_init(void)
{
	return 0;
}

int umad_done(void)
{
	return 0;
}

/* --- finding ----------------------------------------------------------------------------- */

/* The state of a device that may not be alive yet: 0 or -errno. */
static int port_state(struct vb_device *device, enum vb_port_state *state)
{
	struct vb_engine *engine;
	int rc = vb_engine_get(device, &engine);

	if (rc)
		return rc;
	*state = vb_engine_port(engine);
	vb_engine_put(engine);
	return 0;
}

static struct vb_device *find_by_name(struct vb_device *const *list, int count, const char *name)
{
	for (int i = 0; i < count; i++)
		if (strcmp(list[i]->name, name) == 0)
			return list[i];
	return NULL;
}

static struct vb_device *find_best(struct vb_device *const *list, int count)
{
	enum vb_port_state state;

	if (count == 1) /* whatever its state */
		return list[0];
	for (int i = 0; i < count; i++)
		if (port_state(list[i], &state) == 0 && state == VB_PORT_UP)
			return list[i];
	return count > 0 ? list[0] : NULL;
}

int vb_umad_find(const char *ca_name, int portnum, struct vb_device **out)
{
	struct vb_device *const *list;
	int count = vb_host_devices(&list);

	int rc = 0;

	*out = ca_name ? find_by_name(list, count, ca_name) : find_best(list, count);
	if (!*out)
		rc = -ENODEV;
	else if (portnum != 0 && portnum != VB_UMAD_PORT)
		rc = -EINVAL;
	if (rc)
		errno = -rc; /* ibstat and the like print it */
	return rc;
}

int umad_get_cas_names(char cas[][UMAD_CA_NAME_LEN], int max)
{
	struct vb_device *const *list;
	int count = vb_host_devices(&list), filled = 0;

	if (count < 0)
		return -1;
	for (int i = 0; i < count && filled < max; i++)
		if (strlen(list[i]->name) < UMAD_CA_NAME_LEN)
			strcpy(cas[filled++], list[i]->name);
	return filled;
}

/* --- ports ------------------------------------------------------------------------------- */

void vb_umad_describe_port(struct vb_device *device, enum vb_port_state state, umad_port_t *port)
{
	*port = (umad_port_t){
		.portnum = VB_UMAD_PORT,
		.base_lid = device->lid,
		.state = state == VB_PORT_UP ? STATE_ACTIVE : STATE_DOWN,
		.phys_state = vb_physical_state(state),
		.rate = VB_PORT_GBPS,
		.capmask = htobe32(CAPABILITY_CM | CAPABILITY_IP_GIDS),
	};
	snprintf(port->link_layer, sizeof(port->link_layer), "%s",
		 device->lid ? "InfiniBand" : "Ethernet");
	snprintf(port->ca_name, sizeof(port->ca_name), "%.*s", UMAD_CA_NAME_LEN - 1, device->name);
	memcpy(&port->gid_prefix, &device->gids[0].gid.s6_addr[0], sizeof(port->gid_prefix));
	memcpy(&port->port_guid, &device->gids[0].gid.s6_addr[8], sizeof(port->port_guid));
}

static int fill_port(struct vb_device *device, umad_port_t *port)
{
	enum vb_port_state state = VB_PORT_DISABLED;
	int rc = port_state(device, &state);

	if (rc)
		return rc;
	vb_umad_describe_port(device, state, port);
	port->pkeys = calloc(VB_PKEY_TABLE, sizeof(port->pkeys[0]));
	if (!port->pkeys)
		return -ENOMEM;
	port->pkeys[0] = DEFAULT_PKEY;
	port->pkeys_size = VB_PKEY_TABLE;
	return 0;
}

int umad_get_port(const char *ca_name, int portnum, umad_port_t *port)
{
	struct vb_device *device;
	int rc = vb_umad_find(ca_name, portnum, &device);

	return rc ? rc : fill_port(device, port);
}

int umad_release_port(umad_port_t *port)
{
	if (!port)
		return -ENODEV;
	free(port->pkeys);
	port->pkeys = NULL;
	port->pkeys_size = 0;
	return 0;
}

/* --- devices ----------------------------------------------------------------------------- */

int umad_get_ca(const char *ca_name, umad_ca_t *ca)
{
	struct vb_device *device;
	umad_port_t *port;
	int rc = vb_umad_find(ca_name, 0, &device);

	if (rc)
		return rc;
	port = calloc(1, sizeof(*port));
	rc = port ? fill_port(device, port) : -ENOMEM;
	if (rc) {
		free(port);
		return rc;
	}
	*ca = (umad_ca_t){
		.node_type = NODE_TYPE_CA,
		.numports = 1,
		.fw_ver = VB_VERSION,
		.ca_type = "Verbena",
		.node_guid = htobe64(device->guid),
		.system_guid = htobe64(device->guid),
	};
	strcpy(ca->ca_name, port->ca_name);
	snprintf(ca->hw_ver, sizeof(ca->hw_ver), "0x%x", VB_HARDWARE_VERSION);
	ca->ports[VB_UMAD_PORT] = port;
	return 0;
}

int umad_release_ca(umad_ca_t *ca)
{
	if (!ca)
		return -ENODEV;
	for (int i = 0; i < UMAD_CA_MAX_PORTS; i++) {
		if (!ca->ports[i])
			continue;
		umad_release_port(ca->ports[i]);
		free(ca->ports[i]);
		ca->ports[i] = NULL;
	}
	return 0;
}

/* Index 0 is a switch's own port, which an adapter does not have. */
int umad_get_ca_portguids(const char *ca_name, __be64 *portguids, int max)
{
	struct vb_device *device;
	umad_port_t port;
	int rc = vb_umad_find(ca_name, 0, &device);

	if (rc)
		return rc;
	if (!portguids)
		return 0;
	if (max < VB_UMAD_PORT + 1)
		return -ENOMEM;
	vb_umad_describe_port(device, VB_PORT_DISABLED, &port);
	portguids[0] = 0;
	portguids[VB_UMAD_PORT] = port.port_guid;
	return VB_UMAD_PORT + 1;
}

/* A subnet manager would announce itself by this device. A RoCE port has none. */
int umad_get_issm_path(const char *ca_name, int portnum, char path[], int max)
{
	struct vb_device *device;
	int rc = vb_umad_find(ca_name, portnum, &device);

	return rc ? rc : -EINVAL;
}

/* --- lists of names ---------------------------------------------------------------------- */

struct umad_device_node *umad_get_ca_device_list(void)
{
	struct umad_device_node *first = NULL, **end = &first;
	struct vb_device *const *list;
	int count = vb_host_devices(&list);

	errno = count < 0 ? -count : 0; /* an empty list is NULL without an error */
	for (int i = 0; i < count; i++) {
		struct umad_device_node *node = calloc(1, sizeof(*node));

		if (node)
			node->ca_name = strdup(list[i]->name);
		if (!node || !node->ca_name) {
			free(node);
			umad_free_ca_device_list(first);
			errno = ENOMEM;
			return NULL;
		}
		*end = node;
		end = &node->next;
	}
	return first;
}

void umad_free_ca_device_list(struct umad_device_node *head)
{
	while (head) {
		struct umad_device_node *next = head->next;

		free((char *)head->ca_name);
		free(head);
		head = next;
	}
}

static int by_name(const void *left, const void *right)
{
	const struct umad_device_node *const *a = left, *const *b = right;

	return strcmp((*a)->ca_name, (*b)->ca_name);
}

static size_t count_nodes(const struct umad_device_node *node)
{
	size_t count = 0;

	for (; node; node = node->next)
		count++;
	return count;
}

/* size, where it is not 0, must be the list's: 0, EINVAL or ENOMEM, and the list unchanged. */
int umad_sort_ca_device_list(struct umad_device_node **head, size_t size)
{
	size_t count = count_nodes(*head), i = 0;
	struct umad_device_node **nodes;

	if (size && size != count)
		return EINVAL;
	if (count < 2)
		return 0;
	nodes = calloc(count, sizeof(struct umad_device_node *));
	if (!nodes)
		return ENOMEM;
	for (struct umad_device_node *node = *head; node; node = node->next)
		nodes[i++] = node;
	qsort(nodes, count, sizeof(nodes[0]), by_name);
	for (i = 0; i + 1 < count; i++)
		nodes[i]->next = nodes[i + 1];
	nodes[count - 1]->next = NULL;
	*head = nodes[0];
	free(nodes);
	return 0;
}
