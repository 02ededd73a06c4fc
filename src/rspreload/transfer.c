/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * transfer.c - bytes in and out, by rsocket or by the real call; also under the names that programs
 * which were compiled with _FORTIFY_SOURCE call.
 */
#include <errno.h>
#include <sys/sendfile.h>
#include <unistd.h>

#include "rspreload/rspreload.h"

enum { FILE_PIECE = 65536 };

ssize_t __read_chk(int fd, void *buf, size_t count, size_t room);
ssize_t __recv_chk(int fd, void *buf, size_t len, size_t room, int flags);
ssize_t __recvfrom_chk(int fd, void *buf, size_t len, size_t room, int flags, struct sockaddr *addr,
		       socklen_t *addrlen);
void __chk_fail(void) __attribute__((noreturn));
ssize_t sendfile64(int out, int in, off_t *offset, size_t count);

ssize_t recv(int fd, void *buf, size_t len, int flags)
{
	int rs = vb_rsocket_of(fd);

	return rs < 0 ? vb_real()->recv(fd, buf, len, flags)
		      : VB_INSIDE(rrecv(rs, buf, len, flags));
}

ssize_t recvfrom(int fd, void *buf, size_t len, int flags, struct sockaddr *addr,
		 socklen_t *addrlen)
{
	int rs = vb_rsocket_of(fd);

	return rs < 0 ? vb_real()->recvfrom(fd, buf, len, flags, addr, addrlen)
		      : VB_INSIDE(rrecvfrom(rs, buf, len, flags, addr, addrlen));
}

ssize_t recvmsg(int fd, struct msghdr *msg, int flags)
{
	int rs = vb_rsocket_of(fd);

	return rs < 0 ? vb_real()->recvmsg(fd, msg, flags) : VB_INSIDE(rrecvmsg(rs, msg, flags));
}

ssize_t read(int fd, void *buf, size_t count)
{
	int rs = vb_rsocket_of(fd);

	return rs < 0 ? vb_real()->read(fd, buf, count) : VB_INSIDE(rread(rs, buf, count));
}

ssize_t readv(int fd, const struct iovec *iov, int iovcnt)
{
	int rs = vb_rsocket_of(fd);

	return rs < 0 ? vb_real()->readv(fd, iov, iovcnt) : VB_INSIDE(rreadv(rs, iov, iovcnt));
}

ssize_t send(int fd, const void *buf, size_t len, int flags)
{
	int rs = vb_rsocket_of(fd);

	return rs < 0 ? vb_real()->send(fd, buf, len, flags)
		      : VB_INSIDE(rsend(rs, buf, len, flags));
}

ssize_t sendto(int fd, const void *buf, size_t len, int flags, const struct sockaddr *addr,
	       socklen_t addrlen)
{
	int rs = vb_rsocket_of(fd);

	return rs < 0 ? vb_real()->sendto(fd, buf, len, flags, addr, addrlen)
		      : VB_INSIDE(rsendto(rs, buf, len, flags, addr, addrlen));
}

ssize_t sendmsg(int fd, const struct msghdr *msg, int flags)
{
	int rs = vb_rsocket_of(fd);

	return rs < 0 ? vb_real()->sendmsg(fd, msg, flags) : VB_INSIDE(rsendmsg(rs, msg, flags));
}

ssize_t write(int fd, const void *buf, size_t count)
{
	int rs = vb_rsocket_of(fd);

	return rs < 0 ? vb_real()->write(fd, buf, count) : VB_INSIDE(rwrite(rs, buf, count));
}

ssize_t writev(int fd, const struct iovec *iov, int iovcnt)
{
	int rs = vb_rsocket_of(fd);

	return rs < 0 ? vb_real()->writev(fd, iov, iovcnt) : VB_INSIDE(rwritev(rs, iov, iovcnt));
}

ssize_t __read_chk(int fd, void *buf, size_t count, size_t room)
{
	if (count > room)
		__chk_fail();
	return read(fd, buf, count);
}

ssize_t __recv_chk(int fd, void *buf, size_t len, size_t room, int flags)
{
	if (len > room)
		__chk_fail();
	return recv(fd, buf, len, flags);
}

ssize_t __recvfrom_chk(int fd, void *buf, size_t len, size_t room, int flags, struct sockaddr *addr,
		       socklen_t *addrlen)
{
	if (len > room)
		__chk_fail();
	return recvfrom(fd, buf, len, flags, addr, addrlen);
}

/* Piece by piece; what was read and not sent stays unread: at `offset`, or in the file's position.
 */
static ssize_t send_file(int rs, int in, off_t *offset, size_t count)
{
	off_t at = offset ? *offset : lseek(in, 0, SEEK_CUR);
	ssize_t done = 0, got, sent = 0;
	char piece[FILE_PIECE];

	if (at < 0)
		return -1;
	while ((size_t)done < count) {
		size_t size = count - (size_t)done;

		got = pread(in, piece, size < sizeof(piece) ? size : sizeof(piece), at + done);
		if (got <= 0) {
			sent = got;
			break;
		}
		sent = VB_INSIDE(rwrite(rs, piece, (size_t)got));
		if (sent > 0)
			done += sent;
		if (sent < got)
			break;
	}
	if (done == 0 && sent < 0)
		return -1;
	if (offset)
		*offset = at + done;
	else
		lseek(in, at + done, SEEK_SET);
	return done;
}

ssize_t sendfile(int out, int in, off_t *offset, size_t count)
{
	int rs = vb_rsocket_of(out);

	return rs < 0 ? vb_real()->sendfile(out, in, offset, count)
		      : send_file(rs, in, offset, count);
}

/* A 64-bit off_t is what both names mean. */
ssize_t sendfile64(int out, int in, off_t *offset, size_t count)
{
	return sendfile(out, in, offset, count);
}
