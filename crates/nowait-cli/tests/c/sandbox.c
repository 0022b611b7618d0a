/* Lists directories and reads files, with a filter that kills the process for every other system call than those that it makes itself.
 *
 * usage: sandbox listen|inherit DIRECTORY...
 *   listen   sets the filter, and lists
 *   inherit  sets the filter, and runs itself with it: the dynamic linker loads libraries with the filter */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define ALLOW(name) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##name, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

/* The calls that the C library makes for opendir(3), readdir(3), stat(2), open(2), printf(3), fork(2) and exit(3). */
#define ALLOWED                                                                                                        \
	ALLOW(newfstatat), ALLOW(fstat), ALLOW(statx), ALLOW(openat), ALLOW(close), ALLOW(getdents64), ALLOW(read),        \
		ALLOW(write), ALLOW(lseek), ALLOW(brk), ALLOW(mmap), ALLOW(munmap), ALLOW(mprotect), ALLOW(getrandom),         \
		ALLOW(exit_group), ALLOW(clone), ALLOW(set_robust_list), ALLOW(wait4)

static struct sock_filter listing[] = {
	BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
	ALLOWED,
	BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
};

/* Also the calls by which the dynamic linker starts a program, and the next filter is set. */
static struct sock_filter loading[] = {
	BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
	ALLOWED,
	ALLOW(execve),
	ALLOW(pread64),
	ALLOW(set_tid_address),
	ALLOW(rseq),
	ALLOW(prlimit64),
	ALLOW(prctl),
#ifdef __x86_64__
	ALLOW(access),
	ALLOW(arch_prctl),
	ALLOW(readlink),
#else
	ALLOW(faccessat),
	ALLOW(readlinkat),
#endif
	BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
};

static void allow_only(struct sock_filter *filter, size_t length)
{
	struct sock_fprog program = {length, filter};
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) {
		perror("prctl");
		exit(2);
	}
}

static void list(const char *path)
{
	DIR *directory = opendir(path);
	struct dirent *entry;
	int names = 0, files = 0;
	while (directory && (entry = readdir(directory))) {
		struct stat stat;
		names++;
		if (fstatat(dirfd(directory), entry->d_name, &stat, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(stat.st_mode)) {
			int file = openat(dirfd(directory), entry->d_name, O_RDONLY);
			char byte;
			files += read(file, &byte, 1);
			close(file);
		}
	}
	if (directory)
		closedir(directory);
	printf("%s: %d names, %d files with data\n", path, names, files);
	fflush(stdout);
}

int main(int count, char **words)
{
	if (count < 2)
		return 2;
	if (!strcmp(words[1], "inherit")) {
		allow_only(loading, sizeof loading / sizeof *loading);
		words[1] = "listen";
		execv(words[0], words);
		return 3;
	}
	allow_only(listing, sizeof listing / sizeof *listing);
	for (int n = 2; n < count; n++)
		list(words[n]);
	pid_t child = fork();
	if (child == 0) {
		for (int n = 2; n < count; n++)
			list(words[n]);
		_exit(0);
	}
	int status = -1;
	waitpid(child, &status, 0);
	printf("the child: %d\n", status);
	return 0;
}
