/* Files that are neither regular nor pipes. A request acts as pread(2), or as read(2) without offsets. */
#include "check.h"
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>

static char buf[8192];

static void done(struct aiocb *cb, ssize_t n)
{
	CHECK(wait_for(cb) == 0 && aio_return(cb) == n);
}

static void fails(struct aiocb *cb, int errno_)
{
	CHECK(wait_for(cb) == errno_ && aio_return(cb) == -1);
}

static void an_eventfd(void)
{
	uint64_t value = 0, five = 5;
	int fd = eventfd(0, 0);
	struct aiocb r = request(fd, &value, 8, 0), w = request(fd, &five, 8, 4096);
	CHECK(aio_read(&r) == 0);
	nap(20);
	CHECK(aio_error(&r) == EINPROGRESS);
	/* Not by AIO: with glibc a request waits for those before it. */
	CHECK(write(fd, &five, 8) == 8);
	done(&r, 8);
	CHECK(value == 5);
	CHECK(aio_write(&w) == 0);
	done(&w, 8);
	CHECK(read(fd, &value, 8) == 8 && value == 5);
	w = request(fd, &five, 4, 0);
	CHECK(aio_write(&w) == 0);
	fails(&w, EINVAL);
	r = request(fd, &value, 0, 0);
	CHECK(aio_read(&r) == 0);
	fails(&r, EINVAL);
}

static void a_timer(void)
{
	uint64_t ticks = 0;
	int fd = timerfd_create(CLOCK_MONOTONIC, 0);
	struct aiocb r = request(fd, &ticks, 8, 0);
	CHECK(aio_read(&r) == 0);
	nap(20);
	CHECK(aio_error(&r) == EINPROGRESS);
	struct itimerspec once = { .it_value = { 0, 1000000 } };
	CHECK(timerfd_settime(fd, 0, &once, NULL) == 0);
	done(&r, 8);
	CHECK(ticks == 1);
}

static void an_inotify(void)
{
	int fd = inotify_init1(0);
	CHECK(inotify_add_watch(fd, ".", IN_CREATE) >= 0);
	struct aiocb r = request(fd, buf, sizeof buf, 0);
	CHECK(aio_read(&r) == 0);
	nap(20);
	CHECK(aio_error(&r) == EINPROGRESS);
	unlink("watched");
	close(filled("watched", 512));
	CHECK(wait_for(&r) == 0 && aio_return(&r) >= (ssize_t)sizeof(struct inotify_event));
	CHECK(strcmp(((struct inotify_event *)buf)->name, "watched") == 0);
	int idle = inotify_init1(IN_NONBLOCK);
	r = request(idle, buf, sizeof buf, 0);
	CHECK(aio_read(&r) == 0);
	fails(&r, EAGAIN);
}

static void a_signalfd(void)
{
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	CHECK(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
	int fd = signalfd(-1, &set, 0);
	CHECK(raise(SIGUSR1) == 0);
	struct signalfd_siginfo info;
	CHECK(read(fd, &info, sizeof info) == sizeof info);
	struct aiocb w = request(fd, &info, sizeof info, 0);
	CHECK(aio_write(&w) == 0);
	fails(&w, EINVAL);
}

/* An epoll descriptor can be polled, but not read. */
static void an_epoll(void)
{
	struct aiocb r = request(epoll_create1(0), buf, 8, 0);
	CHECK(aio_read(&r) == 0);
	fails(&r, EINVAL);
	CHECK(aio_write(&r) == 0);
	fails(&r, EINVAL);
	r = request(r.aio_fildes, buf, 0, 0);
	CHECK(aio_read(&r) == 0);
	fails(&r, EINVAL);
}

/* More reads than there are threads, on files that support RWF_NOWAIT on no kernel. */
static void many_waiting_requests_delay_no_other(void)
{
	enum { N = 100 };
	static struct aiocb r[N];
	static char c[N];
	int fd = filled("f", 65536), slave[N];
	for (int i = 0; i < N; i++) {
		int master = posix_openpt(O_RDWR | O_NOCTTY);
		CHECK(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0);
		slave[i] = open(ptsname(master), O_RDWR | O_NOCTTY);
		CHECK(slave[i] >= 0);
		r[i] = request(master, &c[i], 1, 0);
		CHECK(aio_read(&r[i]) == 0);
	}
	evict(fd);
	struct aiocb cold = request(fd, buf, 4096, 4096), w = request(fd, buf, 512, 0);
	CHECK(aio_read(&cold) == 0 && aio_write(&w) == 0);
	done(&cold, 4096);
	done(&w, 512);
	for (int i = 0; i < N; i++) {
		CHECK(write(slave[i], "x", 1) == 1);
		done(&r[i], 1);
	}
}

static void devices(void)
{
	struct aiocb r = request(open("/dev/zero", O_RDWR), buf, 4096, 77);
	memset(buf, 'x', 4096);
	CHECK(aio_read(&r) == 0);
	done(&r, 4096);
	CHECK(buf[0] == 0 && buf[4095] == 0);
	CHECK(aio_write(&r) == 0);
	done(&r, 4096);
	r = request(open("/dev/full", O_RDWR), buf, 4096, 0);
	CHECK(aio_write(&r) == 0);
	fails(&r, ENOSPC);
	r = request(open("/dev/null", O_RDWR), buf, 4096, 0);
	CHECK(aio_read(&r) == 0);
	done(&r, 0);
}

/* A write of no bytes sends a message. */
static void an_empty_datagram_is_sent(void)
{
	int s[2];
	char c;
	CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, s) == 0);
	struct aiocb w = request(s[0], &c, 0, 0);
	for (int i = 0; i < 3; i++) {
		CHECK(aio_write(&w) == 0);
		done(&w, 0);
		CHECK(recv(s[1], &c, 1, MSG_DONTWAIT) == 0);
		CHECK(recv(s[1], &c, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN);
		w.aio_buf = NULL;
	}
	close(s[1]);
	signal(SIGPIPE, SIG_DFL);
	CHECK(aio_write(&w) == 0);
	CHECK(wait_for(&w) == ECONNREFUSED || aio_error(&w) == ENOTCONN || aio_error(&w) == EPIPE);
}

/* The empty message waits for room, and keeps its place in the order. */
static void an_empty_datagram_waits_for_room(void)
{
	int s[2], full = 0;
	char c = 'x';
	CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, s) == 0);
	while (send(s[0], &c, 1, MSG_DONTWAIT) == 1)
		full++;
	struct aiocb w[2] = { request(s[0], &c, 0, 0), request(s[0], &c, 1, 0) };
	CHECK(aio_write(&w[0]) == 0 && aio_write(&w[1]) == 0);
	nap(20);
	CHECK(aio_error(&w[0]) == EINPROGRESS && aio_error(&w[1]) == EINPROGRESS);
	for (int i = 0; i < full; i++)
		CHECK(recv(s[1], &c, 1, 0) == 1);
	CHECK(recv(s[1], &c, 1, 0) == 0 && recv(s[1], &c, 1, 0) == 1);
	done(&w[0], 0);
	done(&w[1], 1);
}

static void empty_transfers_on_pipes_and_streams(void)
{
	int p[2], s[2];
	CHECK(pipe(p) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, s) == 0);
	int fds[] = { p[0], p[1], s[0] };
	for (int i = 0; i < 3; i++) {
		struct aiocb cb = request(fds[i], buf, 0, 0);
		CHECK((i == 0 ? aio_read(&cb) : aio_write(&cb)) == 0);
		done(&cb, 0);
	}
	struct aiocb cb = request(s[1], buf, 0, 0);
	CHECK(aio_read(&cb) == 0);
	done(&cb, 0);
	CHECK(fcntl(p[1], F_SETFL, O_NONBLOCK) == 0);
	while (write(p[1], buf, sizeof buf) > 0)
		;
	CHECK(fcntl(p[1], F_SETFL, 0) == 0);
	cb = request(p[1], buf, 0, 0);
	CHECK(aio_write(&cb) == 0);
	done(&cb, 0);
}

/* Bytes are transferred up to the end of the memory. */
static void memory_that_ends_within_the_buffer(void)
{
	int fd = filled("f", 65536);
	char *memory = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(mprotect(memory + 4096, 4096, PROT_NONE) == 0);
	for (int cold = 0; cold < 2; cold++) {
		if (cold)
			evict(fd);
		memset(memory, 'x', 4096);
		struct aiocb r = request(fd, memory, 8192, 512);
		CHECK(aio_read(&r) == 0);
		done(&r, 4096);
		CHECK(memory[0] == 1 && memory[4095] == 8);
	}
	struct aiocb w = request(fd, memory, 8192, 65536);
	CHECK(aio_write(&w) == 0);
	done(&w, 4096);
	CHECK(lseek(fd, 0, SEEK_END) == 65536 + 4096);
	int p[2];
	CHECK(pipe(p) == 0 && write(p[1], buf, 8192) == 8192);
	struct aiocb r = request(p[0], memory, 8192, 0);
	CHECK(aio_read(&r) == 0);
	done(&r, 4096);
}

TESTS(CASE(an_eventfd), CASE(a_timer), CASE(an_inotify), CASE(a_signalfd), CASE(an_epoll),
      CASE(many_waiting_requests_delay_no_other), CASE(devices), CASE(an_empty_datagram_is_sent),
      CASE(an_empty_datagram_waits_for_room), CASE(empty_transfers_on_pipes_and_streams),
      CASE(memory_that_ends_within_the_buffer))
