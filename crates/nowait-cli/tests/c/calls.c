/* Prints what each function that the preload library interposes returns. The output must be the same without it.
 *
 * usage: calls CASE, in a directory that has `tree`. Without an argument, prints the names of the cases. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <ftw.h>
#include <glob.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

/* Names come in the order of the directory, which is no result of the function: they are sorted before they are printed. */
static char *lines[100000];
static size_t count;

__attribute__((format(printf, 1, 2))) static void say(const char *format, ...)
{
	va_list words;
	va_start(words, format);
	if (count == sizeof lines / sizeof *lines || vasprintf(&lines[count++], format, words) < 0)
		abort();
	va_end(words);
}

static int by_text(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

/* Prints the lines since the last call. */
static void print_lines(const char *title)
{
	printf("%s: %zu\n", title, count);
	qsort(lines, count, sizeof *lines, by_text);
	for (size_t i = 0; i < count; i++) {
		printf("  %s\n", lines[i]);
		free(lines[i]);
	}
	count = 0;
}

/* Prints the result and errno of a call. errno is 77 before it. */
#define TRY(call)                                                                                  \
	do {                                                                                       \
		errno = 77;                                                                        \
		long result_ = (long)(call);                                                       \
		int errno_ = errno;                                                                \
		printf("%s: %ld, errno %d\n", #call, result_, errno_);                             \
	} while (0)
/* The same for a call that returns a pointer. */
#define TRY_POINTER(call) TRY((call) == NULL ? 0 : 1)

static void list_open(DIR *dir)
{
	struct dirent *entry;
	errno = 77;
	while ((entry = readdir(dir)) != NULL)
		say("%s %d", entry->d_name, entry->d_type);
	say("end, errno %d", errno);
}

static void list(const char *path)
{
	DIR *dir = opendir(path);
	if (dir == NULL) {
		printf("%s: errno %d\n", path, errno);
		return;
	}
	list_open(dir);
	printf("closedir: %d\n", closedir(dir));
	print_lines(path);
}

static void directories(void)
{
	list("tree");
	list("tree/d1");
	list("tree/none");
	list("tree/d1/f1");
	list("");
	int fd = open("tree/d2", O_RDONLY | O_DIRECTORY);
	DIR *dir = fdopendir(fd);
	printf("dirfd is the descriptor: %d\n", dirfd(dir) == fd);
	list_open(dir);
	print_lines("fdopendir");
	/* A stream that is begun again, and positions in it. */
	rewinddir(dir);
	readdir(dir);
	long here = telldir(dir);
	struct dirent *next = readdir(dir);
	char *name = strdup(next->d_name);
	seekdir(dir, here);
	printf("seekdir: %d\n", strcmp(name, readdir(dir)->d_name));
	free(name);
	closedir(dir);
	TRY(close(fd));
	TRY_POINTER(fdopendir(-1));
	fd = open("tree/d1/f1", O_RDONLY);
	TRY_POINTER(fdopendir(fd));
	TRY(close(fd));
}

static void free_list(struct dirent **list, int n)
{
	for (int i = 0; i < n; i++) {
		say("%s", list[i]->d_name);
		free(list[i]);
	}
	free(list);
}

static int only_f(const struct dirent *entry) { return entry->d_name[0] == 'f'; }

static int backwards(const struct dirent **a, const struct dirent **b) { return -alphasort(a, b); }

static void scandirs(void)
{
	struct dirent **found;
	int n = scandir("tree/d1", &found, NULL, NULL);
	free_list(found, n);
	printf("%d\n", n);
	print_lines("scandir");
	n = scandir("tree/d1", &found, only_f, backwards);
	for (int i = 0; i < n; i++)
		printf("%s%c", found[i]->d_name, i + 1 == n ? '\n' : ' ');
	free_list(found, n);
	print_lines("scandir, selected and sorted");
	struct dirent64 **found64;
	n = scandir64("tree/d1", &found64, NULL, alphasort64);
	for (int i = 0; i < n; i++)
		printf("%s%c", found64[i]->d_name, i + 1 == n ? '\n' : ' ');
	free_list((struct dirent **)found64, n);
	print_lines("scandir64");
	int fd = open("tree", O_RDONLY | O_DIRECTORY);
	n = scandirat(fd, "d2", &found, only_f, alphasort);
	free_list(found, n);
	print_lines("scandirat");
	n = scandirat(AT_FDCWD, "tree/d2", &found, only_f, versionsort);
	free_list(found, n);
	print_lines("scandirat of the working directory");
	TRY(scandirat(fd, "none", &found, NULL, NULL));
	TRY(scandirat(-1, "d2", &found, NULL, NULL));
	TRY(scandir("none", &found, NULL, NULL));
	TRY(scandir("tree/d1/f1", &found, NULL, NULL));
	TRY(scandir("", &found, NULL, NULL));
	close(fd);
}

static int glob_failed(const char *path, int error)
{
	say("failed %s %d", path, error);
	return 0;
}

static void globs(void)
{
	const char *patterns[] = {"tree/*", "tree/*/f1", "tree/d[12]/f?", "none*", "tree/{d1,d2}/f2", "~", "tree/d1/f1/*", "",
				  "tree/d1\\/f*", "*"};
	for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
		glob_t found;
		int result = glob(patterns[i], GLOB_BRACE | GLOB_MARK, glob_failed, &found);
		printf("glob %s: %d, %zu\n", patterns[i], result, result ? 0 : found.gl_pathc);
		for (size_t n = 0; result == 0 && n < found.gl_pathc; n++)
			printf("  %s\n", found.gl_pathv[n]);
		if (result == 0)
			globfree(&found);
		glob64_t found64;
		result = glob64(patterns[i], 0, NULL, &found64);
		printf("glob64 %s: %d, %zu\n", patterns[i], result, result ? 0 : found64.gl_pathc);
		if (result == 0)
			globfree64(&found64);
		print_lines("failed");
	}
}

static int nftw_end;

static int nftw_callback(const char *path, const struct stat *stat, int kind, struct FTW *place)
{
	say("%s %lld %o %d base %d level %d", path, (long long)stat->st_size, stat->st_mode, kind, place->base, place->level);
	return strstr(path, "d3/f3") ? nftw_end : 0;
}

static int ftw_callback(const char *path, const struct stat *stat, int kind)
{
	say("%s %lld %d", path, (long long)stat->st_size, kind);
	return 0;
}

static int order_callback(const char *path, const struct stat *stat, int kind, struct FTW *place)
{
	(void)stat;
	(void)place;
	if (kind == FTW_D && strcmp(path, "tree/d1") == 0)
		return FTW_SKIP_SUBTREE;
	if (strstr(path, "/d2/") != NULL)
		return FTW_SKIP_SIBLINGS;
	if (strcmp(path, "tree/d4") == 0)
		return FTW_STOP;
	/* Where a walk stops depends on the order of the directory: only what is always there is printed. */
	if (strcmp(path, "tree") == 0)
		say("%s %d", path, kind);
	return FTW_CONTINUE;
}

static void walks(void)
{
	int flags[] = {0, FTW_PHYS, FTW_PHYS | FTW_DEPTH, FTW_PHYS | FTW_MOUNT, FTW_PHYS | FTW_CHDIR};
	for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
		TRY(nftw("tree", nftw_callback, 8, flags[i]));
		print_lines("nftw");
		TRY(nftw64("tree", (__nftw64_func_t)nftw_callback, 1, flags[i]));
		print_lines("nftw64");
	}
	TRY(ftw("tree", ftw_callback, 4));
	print_lines("ftw");
	TRY(ftw64("tree/d1", (__ftw64_func_t)ftw_callback, 4));
	print_lines("ftw64");
	nftw_end = 42;
	TRY(nftw("tree/d3", nftw_callback, 8, FTW_PHYS));
	count = 0;
	nftw_end = -1;
	TRY(nftw("tree/d3", nftw_callback, 8, FTW_PHYS));
	count = 0;
	nftw_end = 0;
	TRY(nftw("tree", order_callback, 8, FTW_PHYS | FTW_ACTIONRETVAL));
	print_lines("FTW_ACTIONRETVAL");
	TRY(nftw("none", nftw_callback, 8, 0));
	TRY(nftw("", nftw_callback, 8, 0));
	TRY(ftw("none", ftw_callback, 8));
	TRY(nftw("tree/d1/f1", nftw_callback, 8, 0));
	print_lines("a file");
}

static int inner_callback(const char *path, const struct stat *stat, int kind, struct FTW *place)
{
	(void)stat;
	say("inner %s %d level %d", path, kind, place->level);
	return 0;
}

static int nested_callback(const char *path, const struct stat *stat, int kind, struct FTW *place)
{
	(void)stat;
	say("outer %s %d level %d", path, kind, place->level);
	if (kind == FTW_D && place->level == 1 && nftw(path, inner_callback, 4, FTW_PHYS) != 0)
		say("inner walk failed");
	return 0;
}

static void nested_walks(void)
{
	TRY(nftw("tree", nested_callback, 8, FTW_PHYS));
	print_lines("nested");
}

static jmp_buf out;
static int jumps;

static int jumping_callback(const char *path, const struct stat *stat, int kind, struct FTW *place)
{
	(void)path;
	(void)stat;
	(void)kind;
	if (place->level == 1)
		longjmp(out, ++jumps);
	return 0;
}

static int catching_callback(const char *path, const struct stat *stat, int kind, struct FTW *place)
{
	(void)stat;
	say("outer %s", path);
	if (kind == FTW_D && place->level == 1) {
		jmp_buf saved;
		memcpy(saved, out, sizeof saved);
		if (setjmp(out) == 0)
			nftw("tree", jumping_callback, 4, FTW_PHYS);
		memcpy(out, saved, sizeof saved);
	}
	return 0;
}

static void jumps_out_of_walks(void)
{
	for (volatile int i = 0; i < 3; i++) {
		int jumped = setjmp(out);
		if (jumped == 0)
			nftw("tree", jumping_callback, 8, FTW_PHYS);
		printf("jumped: %d\n", jumped);
	}
	TRY(nftw("tree", nftw_callback, 8, FTW_PHYS));
	print_lines("after the jumps");
	TRY(nftw("tree", catching_callback, 8, FTW_PHYS));
	print_lines("jumps within a walk");
}

static void *walk_in_thread(void *title)
{
	static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
	pthread_mutex_lock(&turn);
	TRY(nftw("tree", nftw_callback, 8, FTW_PHYS));
	print_lines(title);
	pthread_mutex_unlock(&turn);
	return NULL;
}

static int by_name(const FTSENT **a, const FTSENT **b) { return strcmp((*a)->fts_name, (*b)->fts_name); }

static void fts_walks(void)
{
	char *paths[] = {"tree", "tree/d1/f1", "none", NULL};
	int options[] = {FTS_PHYSICAL, FTS_LOGICAL, FTS_PHYSICAL | FTS_NOCHDIR, FTS_PHYSICAL | FTS_NOSTAT,
			 FTS_PHYSICAL | FTS_SEEDOT | FTS_XDEV};
	for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
		FTS *walk = fts_open(paths, options[i], by_name);
		FTSENT *entry;
		errno = 77;
		while ((entry = fts_read(walk)) != NULL) {
			printf("%s info %d level %d errno %d", entry->fts_path, entry->fts_info, entry->fts_level,
			       entry->fts_errno);
			if (entry->fts_info == FTS_F && !(options[i] & FTS_NOSTAT))
				printf(" %lld", (long long)entry->fts_statp->st_size);
			putchar('\n');
			if (entry->fts_info == FTS_D && strcmp(entry->fts_name, "d1") == 0) {
				FTSENT *child = fts_children(walk, 0);
				for (; child != NULL; child = child->fts_link)
					printf("  child %s\n", child->fts_name);
			}
			if (entry->fts_info == FTS_D && strcmp(entry->fts_name, "d2") == 0)
				fts_set(walk, entry, FTS_SKIP);
		}
		printf("errno %d\n", errno);
		TRY(fts_close(walk));
	}
	FTS64 *walk = fts64_open(paths, FTS_PHYSICAL, NULL);
	FTSENT64 *entry;
	while ((entry = fts64_read(walk)) != NULL)
		say("%s %d", entry->fts_path, entry->fts_info);
	fts64_close(walk);
	print_lines("fts64");
	TRY_POINTER(fts_open(paths, 0, NULL));
}

struct linux_dirent64 {
	uint64_t ino;
	int64_t off;
	unsigned short reclen;
	unsigned char type;
	char name[];
};

static void raw_listings(void)
{
	_Alignas(8) char bytes[512];
	for (int raw = 0; raw < 2; raw++) {
		int fd = open("tree/large", O_RDONLY | O_DIRECTORY);
		long n;
		while ((n = raw ? syscall(SYS_getdents64, fd, bytes, sizeof bytes) : getdents64(fd, bytes, sizeof bytes)) > 0) {
			for (long at = 0; at < n;) {
				struct linux_dirent64 *entry = (void *)(bytes + at);
				say("%s %d", entry->name, entry->type);
				at += entry->reclen;
			}
		}
		printf("at the end: %ld\n", n);
		close(fd);
		print_lines("getdents64");
	}
	TRY(getdents64(-1, bytes, sizeof bytes));
	TRY(syscall(SYS_getdents64, -1, bytes, sizeof bytes));
	int fd = open("tree/large", O_RDONLY | O_DIRECTORY);
	TRY(getdents64(fd, bytes, 8));
	TRY(syscall(SYS_getdents64, fd, NULL, 8192));
	close(fd);
	fd = open("tree/d1/f1", O_RDONLY);
	TRY(getdents64(fd, bytes, sizeof bytes));
	close(fd);
}

static void stats(void)
{
	struct stat st;
	struct stat64 st64;
	struct statx stx;
	const char *paths[] = {"tree/d1/f1", "tree/link", "tree/dangling", "tree", "none", "tree/d1/f1/none", ""};
	int dir = open("tree", O_RDONLY | O_DIRECTORY);
	for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
		const char *path = paths[i];
		printf("%s\n", path);
#define SHOW(call, field)                                                                          \
	memset(&st, 0, sizeof st), memset(&st64, 0, sizeof st64), memset(&stx, 0, sizeof stx);     \
	TRY(call);                                                                                 \
	printf("  %llu\n", (unsigned long long)(field))
		SHOW(stat(path, &st), st.st_ino);
		SHOW(lstat(path, &st), st.st_size);
		SHOW(stat64(path, &st64), st64.st_mtim.tv_nsec);
		SHOW(lstat64(path, &st64), st64.st_mode);
		SHOW(fstatat(AT_FDCWD, path, &st, AT_SYMLINK_NOFOLLOW), st.st_nlink);
		SHOW(fstatat(dir, "d1/f2", &st, 0), st.st_ino);
		SHOW(fstatat64(AT_FDCWD, path, &st64, AT_EMPTY_PATH), st64.st_uid);
		SHOW(statx(AT_FDCWD, path, AT_STATX_DONT_SYNC, STATX_BASIC_STATS, &stx), stx.stx_ino);
		SHOW(statx(dir, "", AT_EMPTY_PATH, STATX_BTIME, &stx), stx.stx_mode);
		SHOW(syscall(SYS_statx, AT_FDCWD, path, 0, STATX_SIZE, &stx), stx.stx_size);
		SHOW(syscall(SYS_newfstatat, dir, "d1/f3", &st, 0), st.st_size);
#ifdef SYS_stat
		SHOW(syscall(SYS_stat, path, &st), st.st_size);
		SHOW(syscall(SYS_lstat, path, &st), st.st_size);
#endif
	}
	TRY(fstatat(-1, "f", &st, 0));
	TRY(fstatat(AT_FDCWD, "tree", &st, 0x40000000));
	TRY(statx(AT_FDCWD, "tree", 0, 0x80000000, &stx));
	TRY(syscall(SYS_statx, AT_FDCWD, (char *)1, 0, STATX_SIZE, &stx));
	/* Calls of syscall(2) with all numbers of arguments. */
	TRY(syscall(SYS_getpid) == getpid());
	TRY(syscall(SYS_close, -1));
	TRY(syscall(SYS_dup2, 1, 1));
	TRY(syscall(SYS_fcntl, 1, F_GETFD, 0));
	int copy = open("copy", O_RDWR | O_CREAT | O_TRUNC, 0600);
	int from = open("tree/d1/f3", O_RDONLY);
	off_t at = 1, to = 3;
	TRY(syscall(SYS_copy_file_range, from, &at, copy, &to, 2, 0));
	printf("%lld %lld\n", (long long)at, (long long)to);
	TRY(syscall(SYS_pread64, from, &st, 3, 1));
	struct iovec vector = {&st, 3};
	TRY(preadv2(from, &vector, 1, 1, 0));
	TRY(preadv2(from, &vector, 1, -1, 0));
	TRY(preadv2(from, &vector, 1, 0, -1));
	at = 1;
	TRY(sendfile(copy, from, &at, 2));
	TRY(sendfile(copy, from, NULL, 2));
	TRY(sendfile(copy, from, (off_t *)1, 2));
	at = -1;
	TRY(sendfile(copy, from, &at, 2));
	printf("%lld\n", (long long)at);
	int last = dup(from);
	TRY(syscall(SYS_close, last));
	TRY(syscall(SYS_close, last));
	TRY(syscall(100000, 1, 2, 3, 4, 5, 6));
	close(copy);
	close(from);
	close(dir);
}

#if defined(__x86_64__)
#define OLD "GLIBC_2.2.5"
#define OLD_AT "GLIBC_2.4"
#else
#define OLD "GLIBC_2.17"
#define OLD_AT "GLIBC_2.17"
#endif

static void old_versions(void)
{
	/* The functions that programs of before glibc 2.33 call. The C library has them, but no header. */
	int (*xstat)(int, const char *, struct stat *) = dlvsym(RTLD_DEFAULT, "__xstat", OLD);
	int (*lxstat)(int, const char *, struct stat *) = dlvsym(RTLD_DEFAULT, "__lxstat", OLD);
	int (*fxstatat)(int, int, const char *, struct stat *, int) = dlvsym(RTLD_DEFAULT, "__fxstatat", OLD_AT);
	int (*fxstatat64)(int, int, const char *, struct stat64 *, int) = dlvsym(RTLD_DEFAULT, "__fxstatat64", OLD_AT);
	int (*xstat64)(int, const char *, struct stat64 *) = dlvsym(RTLD_DEFAULT, "__xstat64", OLD);
	int (*lxstat64)(int, const char *, struct stat64 *) = dlvsym(RTLD_DEFAULT, "__lxstat64", OLD);
	printf("%d %d %d\n", xstat != NULL, lxstat != NULL, fxstatat != NULL);
	printf("%d %d %d\n", xstat64 != NULL, lxstat64 != NULL, fxstatat64 != NULL);
	struct stat st;
	struct stat64 st64;
	const int version = sizeof(long) == 8 && strcmp(OLD, "GLIBC_2.17") != 0 ? 1 : 0;
	TRY(xstat(version, "tree/d1/f1", &st));
	printf("%lld\n", (long long)st.st_size);
	TRY(lxstat(version, "tree/link", &st));
	printf("%lld\n", (long long)st.st_size);
	TRY(fxstatat(version, AT_FDCWD, "tree/link", &st, 0));
	printf("%lld\n", (long long)st.st_size);
	TRY(xstat64(version, "tree/d1/f2", &st64));
	printf("%lld\n", (long long)st64.st_size);
	TRY(lxstat64(version, "tree/link", &st64));
	printf("%lld\n", (long long)st64.st_size);
	TRY(fxstatat64(version, AT_FDCWD, "tree/d1/f4", &st64, 0));
	printf("%lld\n", (long long)st64.st_size);
	TRY(xstat(version, "none", &st));
	TRY(lxstat(version, "none", &st));
	TRY(fxstatat(version, -1, "none", &st, 0));
	TRY(xstat(99, "tree", &st));
	/* What a program finds by name works. */
	DIR *(*open_it)(const char *) = dlsym(RTLD_DEFAULT, "opendir");
	DIR *dir = open_it("tree/d1");
	list_open(dir);
	closedir(dir);
	print_lines("by dlsym");
}

static atomic_int over;

static void *list_again_and_again(void *unused)
{
	while (!atomic_load(&over)) {
		DIR *dir = opendir("tree/large");
		struct stat st;
		for (struct dirent *entry; dir != NULL && (entry = readdir(dir)) != NULL;)
			fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW);
		closedir(dir);
		nftw("tree/d1", inner_callback, 4, 0);
		count = 0;
	}
	return unused;
}

static void *stat_again_and_again(void *unused)
{
	struct stat st;
	while (!atomic_load(&over)) {
		stat("tree/d1/f1", &st);
		DIR *dir = opendir("tree/d1");
		readdir(dir);
		closedir(dir);
	}
	return unused;
}

static int wait_for(pid_t pid)
{
	int status;
	return waitpid(pid, &status, 0) == pid ? status : -1;
}

static void forks(void)
{
	pthread_t threads[2];
	pthread_create(&threads[0], NULL, list_again_and_again, NULL);
	pthread_create(&threads[1], NULL, stat_again_and_again, NULL);
	int failed = 0;
	for (int i = 0; i < 100; i++) {
		pid_t pid = fork();
		if (pid == 0) {
			int names = 0;
			DIR *dir = opendir("tree/large");
			while (readdir(dir) != NULL)
				names++;
			struct stat st;
			_exit(names == 302 && lstat("tree/link", &st) == 0 ? 0 : 1);
		}
		failed += wait_for(pid) != 0;
	}
	atomic_store(&over, 1);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	printf("failed children: %d\n", failed);
}

static void vforks(void)
{
	for (volatile int i = 0; i < 3; i++) {
		struct stat st;
		stat("tree", &st);
		pid_t pid = vfork();
		if (pid == 0) {
			/* A call in the child, which shares the memory of its parent. */
			stat("tree/d1", &st);
			execl("/bin/ls", "ls", "tree/d1", (char *)NULL);
			_exit(9);
		}
		printf("status %d\n", wait_for(pid));
		fflush(stdout);
	}
	/* A program that is not there. */
	pid_t pid = vfork();
	if (pid == 0) {
		execl("/none", "none", (char *)NULL);
		_exit(9);
	}
	printf("status %d\n", WEXITSTATUS(wait_for(pid)));
	fflush(stdout);
	printf("system: %d\n", system("ls tree/d2"));
}

static volatile sig_atomic_t ticks;

static void tick(int signal)
{
	(void)signal;
	int saved = errno;
	struct stat st;
	stat("tree/d1/f1", &st);
	fstatat(AT_FDCWD, "none", &st, 0);
	ticks++;
	errno = saved;
}

static void signals(void)
{
	struct sigaction action = {.sa_handler = tick, .sa_flags = SA_RESTART};
	sigaction(SIGALRM, &action, NULL);
	struct itimerval often = {.it_interval = {.tv_usec = 200}, .it_value = {.tv_usec = 200}};
	setitimer(ITIMER_REAL, &often, NULL);
	int wrong = 0;
	for (int i = 0; i < 1000 && (i < 100 || ticks < 100); i++) {
		struct stat st;
		errno = 77;
		wrong += stat("tree/d1/f2", &st) != 0 || errno != 77;
		wrong += lstat("none", &st) != -1 || errno != ENOENT;
		DIR *dir = opendir("tree/large");
		int names = 0;
		while (dir != NULL && readdir(dir) != NULL)
			names++;
		wrong += names != 302;
		if (dir != NULL)
			closedir(dir);
		wrong += nftw("tree", inner_callback, 8, FTW_PHYS) != 0;
		for (; count > 0; count--)
			free(lines[count - 1]);
	}
	struct itimerval never = {0};
	setitimer(ITIMER_REAL, &never, NULL);
	printf("wrong: %d\n", wrong);
}

static void libraries(void)
{
	for (int i = 0; i < 200; i++) {
		void *library = dlopen("libm.so.6", RTLD_NOW | RTLD_LOCAL);
		void *other = dlopen("libresolv.so.2", RTLD_LAZY);
		struct stat st;
		if (library == NULL || other == NULL || stat("tree", &st) != 0)
			printf("failed: %s\n", dlerror());
		dlclose(other);
		dlclose(library);
	}
	TRY_POINTER(dlopen("none.so", RTLD_NOW));
	list("tree/d1");
}

static void at_exit(void)
{
	list("tree/d1");
	TRY(nftw("tree/d2", nftw_callback, 8, 0));
	print_lines("nftw in an exit handler");
	fflush(stdout);
}

__attribute__((destructor)) static void at_the_end(void)
{
	struct stat st;
	char said[64];
	int n = snprintf(said, sizeof said, "destructor: %d\n", stat("tree", &st));
	if (getenv("CALLS_DESTRUCTOR") != NULL && write(1, said, (size_t)n) != n)
		_exit(8);
}

static void exit_handlers(void)
{
	setenv("CALLS_DESTRUCTOR", "1", 1);
	atexit(at_exit);
	list("tree/d3");
	fflush(stdout);
	exit(3);
}

static void closes_all(void)
{
	list("tree/d1");
	fflush(stdout);
	int saved = dup2(1, 200);
	/* As daemons do. The descriptors that the library has, if any, are among them. */
	syscall(SYS_close_range, 3, 199, 0);
	syscall(SYS_close_range, 201, ~0U, 0);
	closefrom(201);
	printf("%d\n", saved);
	list("tree/d2");
	DIR *dir = opendir("/proc/self/fd");
	for (struct dirent *entry; (entry = readdir(dir)) != NULL;)
		if (entry->d_name[0] != '.')
			say("%s", entry->d_name);
	closedir(dir);
	print_lines("descriptors");
	/* New descriptors are the lowest free ones. */
	int fd = open("tree", O_RDONLY);
	printf("%d\n", fd);
	TRY(nftw("tree", nftw_callback, 8, FTW_PHYS));
	print_lines("nftw");
}

static void environment(void)
{
	/* Programs may remove what has loaded the library. */
	clearenv();
	list("tree/d1");
	execl("/bin/ls", "ls", "tree/d2", (char *)NULL);
}

static void threads(void)
{
	pthread_t walkers[8];
	for (int i = 0; i < 8; i++)
		pthread_create(&walkers[i], NULL, walk_in_thread, "in a thread");
	for (int i = 0; i < 8; i++)
		pthread_join(walkers[i], NULL);
}

static const struct test {
	const char *name;
	void (*run)(void);
} tests[] = {
	{"directories", directories},
	{"scandirs", scandirs},
	{"globs", globs},
	{"walks", walks},
	{"nested_walks", nested_walks},
	{"jumps_out_of_walks", jumps_out_of_walks},
	{"threads", threads},
	{"fts_walks", fts_walks},
	{"raw_listings", raw_listings},
	{"stats", stats},
	{"old_versions", old_versions},
	{"forks", forks},
	{"vforks", vforks},
	{"signals", signals},
	{"libraries", libraries},
	{"exit_handlers", exit_handlers},
	{"closes_all", closes_all},
	{"environment", environment},
};

int main(int argc, char **argv)
{
	for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) {
		if (argc < 2)
			puts(tests[i].name);
		else if (strcmp(argv[1], tests[i].name) == 0) {
			/* Nothing that was printed is lost or printed by a child again. */
			setvbuf(stdout, NULL, _IOLBF, 0);
			tests[i].run();
			return 0;
		}
	}
	return argc < 2 ? 0 : 2;
}
