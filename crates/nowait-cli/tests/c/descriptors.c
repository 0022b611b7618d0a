/* descriptors HOW FILE...: reads each file after its first descriptor was closed, HOW says by which
 * other one. Ends with 1 if a call fails. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/openat2.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *self, *how;
static int is(const char *name) { return strcmp(how, name) == 0; }
static void check(int is_good, const char *what)
{
	if (!is_good) {
		fprintf(stderr, "%s: %s: %s\n", how, what, strerror(errno));
		_exit(1);
	}
}

/* nowait run has looked at all files meanwhile. */
static void later(void) { usleep(60000); }

static void read_all(int fd)
{
	static __thread char bytes[65536];
	ssize_t len, offset = 0;
	while ((len = pread(fd, bytes, sizeof bytes, offset)) > 0)
		offset += len;
	check(len == 0, "read");
}

static void read_later(int fd) { later(); read_all(fd); check(close(fd) == 0, "close"); }

static int read_in_child(void *fd) { read_later(*(int *)fd); _exit(0); }

static void wait_for(pid_t child)
{
	int status;
	check(child > 0 && waitpid(child, &status, 0) == child && status == 0, "child");
}

static void send_descriptor(int socket, int fd)
{
	char byte = 0, control[CMSG_SPACE(sizeof fd)] = {0};
	struct iovec part = {&byte, 1};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1,
		.msg_control = control, .msg_controllen = sizeof control};
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);
	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(sizeof fd);
	memcpy(CMSG_DATA(header), &fd, sizeof fd);
	if (is("sendmmsg")) {
		struct mmsghdr messages = {.msg_hdr = message};
		check(sendmmsg(socket, &messages, 1, 0) == 1, "sendmmsg");
	} else
		check(sendmsg(socket, &message, 0) == 1, "sendmsg");
}

static int receive_descriptor(int socket)
{
	int fd;
	char byte, control[CMSG_SPACE(sizeof fd)];
	struct iovec part = {&byte, 1};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1,
		.msg_control = control, .msg_controllen = sizeof control};
	check(recvmsg(socket, &message, 0) == 1, "recvmsg");
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
	return fd;
}

static void map(int fd)
{
	struct stat stat;
	check(fstat(fd, &stat) == 0, "fstat");
	const volatile char *bytes = mmap(NULL, stat.st_size, PROT_READ, MAP_SHARED, fd, 0);
	check(bytes != MAP_FAILED && close(fd) == 0, "mmap");
	later();
	for (off_t at = 0; at < stat.st_size; at += 4096)
		(void)bytes[at];
	check(munmap((void *)bytes, stat.st_size) == 0, "munmap");
}

/* The words of a program that reads the descriptor. */
static char number[16];
static char *const *from(int fd)
{
	static char *words[] = {NULL, "from", number, NULL};
	words[0] = (char *)self;
	snprintf(number, sizeof number, "%d", fd);
	return words;
}

static void start(int fd)
{
	pid_t child;
	static char stack[65536] __attribute__((aligned(16)));
	if (is("posix_spawn"))
		check(posix_spawn(&child, self, NULL, NULL, from(fd), environ) == 0, "posix_spawn");
	else if (is("vfork")) {
		char *const *words = from(fd);
		if ((child = vfork()) == 0) {
			execv(self, words);
			_exit(1);
		}
	} else if (is("clone"))
		child = clone(read_in_child, stack + sizeof stack, SIGCHLD, &fd);
	else {
		child = is("syscall") ? syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) : fork();
		if (child == 0)
			read_in_child(&fd);
	}
	check(close(fd) == 0, "close");
	wait_for(child);
}

/* The last bytes are read and written again. The C library writes them within fclose(3). */
static void rewrite(const char *path)
{
	static char bytes[1 << 20];
	FILE *file = fopen(path, "rb+");
	check(file && fseek(file, -100, SEEK_END) == 0, "fopen");
	check(fread(bytes, 1, 100, file) == 100 && fseek(file, -100, SEEK_END) == 0, "fread");
	check(fwrite(bytes, 1, 100, file) == 100 && fclose(file) == 0, "fwrite");
}

static void reopen_stream(const char *path)
{
	static char bytes[65536];
	FILE *file = freopen(path, "r", fopen("/dev/null", "r"));
	check(file != NULL, "freopen");
	while (fread(bytes, 1, sizeof bytes, file) > 0)
		;
	check(fclose(file) == 0, "fclose");
}

/* A copy that has no name until it is written. */
static void link_copy(const char *path)
{
	char bytes[65536], from[64], to[64];
	int fd = open(path, O_RDONLY), copy = open(".", O_TMPFILE | O_RDWR, 0600);
	for (ssize_t len; (len = read(fd, bytes, sizeof bytes)) > 0;)
		check(write(copy, bytes, len) == len, "write");
	snprintf(from, sizeof from, "/proc/self/fd/%d", copy);
	snprintf(to, sizeof to, "copy-%s", path);
	check(linkat(AT_FDCWD, from, AT_FDCWD, to, AT_SYMLINK_FOLLOW) == 0, "linkat");
	check(close(copy) == 0 && close(fd) == 0, "close");
}

static int open_by_handle(const char *path)
{
	struct { struct file_handle head; char bytes[MAX_HANDLE_SZ]; } handle = {.head.handle_bytes = MAX_HANDLE_SZ};
	int mount, fd = open(".", O_RDONLY);
	check(name_to_handle_at(AT_FDCWD, path, &handle.head, &mount, 0) == 0, "name_to_handle_at");
	int opened = open_by_handle_at(fd, &handle.head, O_RDONLY);
	close(fd);
	return opened;
}

static void use(const char *path)
{
	if (is("fopen")) return rewrite(path);
	if (is("link")) return link_copy(path);
	if (is("freopen")) return reopen_stream(path);
	if (is("handle")) return read_later(open_by_handle(path));
	if (is("openat")) return read_later(syscall(SYS_openat, AT_FDCWD, path, O_RDONLY));
	if (is("openat2")) {
		struct open_how how = {.flags = O_RDONLY};
		return read_later(syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof how));
	}
	int fd = open(path, O_RDONLY), other = -1, sockets[2];
	check(fd >= 0, path);
	if (is("dup")) other = dup(fd);
	else if (is("dup2")) other = dup2(fd, 900);
	else if (is("dup3")) other = dup3(fd, 901, O_CLOEXEC);
	else if (is("dup_fails")) {
		const int bad = 999;
		check(dup2(bad, fd) < 0 && errno == EBADF, "dup2");
		check(dup3(bad, fd, 0) < 0 && errno == EBADF, "dup3");
		check(dup3(2, fd, ~0) < 0 && errno == EINVAL, "dup3");
		return read_later(fd);
	} else if (is("syscall_dup")) other = syscall(SYS_dup, fd);
	else if (is("fcntl")) other = fcntl(fd, F_DUPFD, 902);
	else if (is("open")) other = open(path, O_RDONLY);
	else if (is("reopen")) {
		char name[64];
		snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
		other = open(name, O_RDONLY);
	} else if (is("sendmsg") || is("sendmmsg")) {
		check(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0, "socketpair");
		send_descriptor(sockets[0], fd);
		check(close(fd) == 0, "close");
		read_later(receive_descriptor(sockets[1]));
		close(sockets[0]);
		close(sockets[1]);
		return;
	} else if (is("mmap")) return map(fd);
	else if (is("fdopen")) {
		static char bytes[65536];
		FILE *file = fdopen(fd, "r");
		while (fread(bytes, 1, sizeof bytes, file) > 0)
			;
		check(fclose(file) == 0, "fclose");
		return;
	} else if (is("close_range")) {
		read_all(fd);
		check(close_range(fd, fd, 0) == 0, "close_range");
		return;
	} else if (is("syscall_close")) {
		read_all(fd);
		check(syscall(SYS_close, fd) == 0, "close");
		return;
	} else if (is("exec")) {
		execv(self, from(fd));
		check(0, "execv");
	} else if (is("close")) return read_later(fd);
	else return start(fd);
	read_all(fd);
	check(close(fd) == 0 && other >= 0, "close");
	read_later(other);
}

/* Another file gets the number of a descriptor that the library has not seen being closed. */
static void replace(const char *path, const char *resident)
{
	int fd = open(path, O_RDONLY);
	read_all(fd);
	check(fd >= 0 && close_range(fd, fd, 0) == 0, "close_range");
	check(syscall(SYS_openat, AT_FDCWD, resident, O_RDONLY) == fd, "openat");
	check(close(fd) == 0, "close");
}

static void *use_all(void *paths)
{
	for (int n = 0; n < 20; n++)
		for (char **path = paths; *path; path++) {
			int fd = open(*path, O_RDONLY);
			check(fd >= 0, *path);
			read_all(fd);
			close(fd);
		}
	return NULL;
}

static void threads(char **paths)
{
	pthread_t threads[4];
	for (int n = 0; n < 4; n++)
		check(pthread_create(&threads[n], NULL, use_all, paths) == 0, "pthread_create");
	for (int n = 0; n < 4; n++)
		pthread_join(threads[n], NULL);
}

/* Descriptors that are no files of the disk, or that have no name. */
static void others(void)
{
	int pipes[2], fd = open(".", O_TMPFILE | O_RDWR, 0600);
	check(fd >= 0 && write(fd, "text", 4) == 4 && close(fd) == 0, "O_TMPFILE");
	check(pipe(pipes) == 0 && close(pipes[0]) == 0 && close(pipes[1]) == 0, "pipe");
	check((fd = memfd_create("text", 0)) >= 0 && close(fd) == 0, "memfd_create");
	check((fd = open(".", O_PATH)) >= 0 && close(fd) == 0, "O_PATH");
	check(close(-1) == -1 && errno == EBADF, "close -1");
	check(close(1 << 20) == -1 && errno == EBADF, "close 1048576");
	check(fcntl(1 << 20, F_GETFD) == -1 && errno == EBADF, "fcntl");
}

int main(int argc, char **argv)
{
	self = argv[0];
	how = argv[1];
	if (is("from"))
		return read_later(atoi(argv[2])), 0;
	others();
	if (is("threads"))
		threads(argv + 2);
	else if (is("replace"))
		replace(argv[2], argv[3]);
	else if (is("exchange"))
		check(renameat2(AT_FDCWD, argv[2], AT_FDCWD, argv[3], RENAME_EXCHANGE) == 0, "renameat2");
	else if (is("syscall_exchange"))
		check(syscall(SYS_renameat2, AT_FDCWD, argv[2], AT_FDCWD, argv[3], RENAME_EXCHANGE) == 0, "renameat2");
	else
		for (int n = 2; n < argc; n++)
			use(argv[n]);
	return 0;
}
