// A program that prints what it can notice of a library in it.
//   notices refused            what calls return for addresses and paths that the kernel does not accept
//   notices waits FILE         closes a file, and ends, while a thread and a child wait in read(2) of it
//   notices descriptors FILE   the descriptors that appear while files are mapped and unmapped, and used in other ways
//   notices locked FILE        how much of a file is read from the disk if 4 KiB are read after mlockall(2)
//   notices limited DIR        one copy_file_range(2) over the limit of file sizes
//   notices filtered PROGRAM…  runs a program with a filter that allows all system calls, as containers have
//   notices vfork FILE         a child of vfork(2) uses the descriptors of its parent
#define _GNU_SOURCE
#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <glob.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

// A path or another argument that a call does not accept.
static void *refused;
static int file, other, sockets[2];
static char buffer[4096];
static struct stat status;
static struct statx statuses;
static struct dirent **entries;

static long pointer(void *result) { return result ? 0 : -1; }
static long list_tree(void) { return pointer(fts_open(refused, 1 << 20, NULL)); }
static long find_pattern(void) {
    glob_t found;
    return glob(refused, 1 << 20, NULL, &found);
}

#define CALLS(each)                                                                                    \
    each(open_it, open(refused, O_RDONLY))                                                             \
    each(open_to_write, open(refused, O_RDWR | O_CREAT, 0600))                                         \
    each(open_at, openat(AT_FDCWD, refused, O_RDONLY))                                                 \
    each(create, creat(refused, 0600))                                                                 \
    each(open_by_number, syscall(SYS_openat, AT_FDCWD, refused, O_RDONLY))                             \
    each(open_2, syscall(SYS_openat2, AT_FDCWD, refused, refused, 24))                                 \
    each(stat_it, stat(refused, &status))                                                              \
    each(lstat_it, lstat(refused, &status))                                                            \
    each(stat_at, fstatat(AT_FDCWD, refused, &status, 0))                                              \
    each(statx_at, statx(AT_FDCWD, refused, 0, STATX_INO, &statuses))                                  \
    each(stat_by_number, syscall(SYS_newfstatat, AT_FDCWD, refused, &status, 0))                       \
    each(access_it, access(refused, R_OK))                                                             \
    each(access_at, faccessat(AT_FDCWD, refused, R_OK, 0))                                             \
    each(read_link, readlink(refused, buffer, sizeof buffer))                                          \
    each(read_link_at, readlinkat(AT_FDCWD, refused, buffer, sizeof buffer))                           \
    each(change, chdir(refused))                                                                       \
    each(execute, execve(refused, NULL, NULL))                                                         \
    each(execute_v, execv(refused, (char *[]){"", NULL}))                                              \
    each(execute_l, execl(refused, "", (char *)NULL))                                                  \
    each(execute_le, execle(refused, "", (char *)NULL, (char *[]){NULL}))                              \
    each(open_directory, pointer(opendir(refused)))                                                    \
    each(scan, scandir(refused, &entries, NULL, NULL))                                                 \
    each(scan_at, scandirat(AT_FDCWD, refused, &entries, NULL, NULL))                                  \
    each(stream, pointer(fopen(refused, "r")))                                                         \
    each(another_stream, pointer(freopen(refused, "r", stdin)))                                        \
    each(tree, list_tree())                                                                            \
    each(pattern, find_pattern())                                                                      \
    each(send, sendmsg(sockets[0], refused, 0))                                                        \
    each(send_to_none, sendmsg(-1, refused, 0))                                                        \
    each(send_nothing, sendmsg(sockets[0], NULL, 0))                                                   \
    each(send_several, sendmmsg(sockets[0], refused, 1, 0))                                            \
    each(copy, copy_file_range(file, refused, other, NULL, 16 << 20, 0))                               \
    each(copy_to, copy_file_range(file, NULL, other, refused, 16 << 20, 0))                            \
    each(send_file, sendfile(other, file, refused, 100))                                               \
    each(splice_it, splice(file, refused, sockets[1], NULL, 100, 0))                                   \
    each(read_at, pread(file, refused, 100, 0))                                                        \
    each(list, syscall(SYS_getdents64, file, refused, 100))

#define DEFINE(name, call) static long try_##name(void) { return (long)(call); }
CALLS(DEFINE)
#define ENTRY(name, call) {#name, try_##name},
static const struct {
    const char *name;
    long (*call)(void);
} TABLE[] = {CALLS(ENTRY)};

static void try_all(const char *kind) {
    for (size_t at = 0; at < sizeof TABLE / sizeof *TABLE; at++) {
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            errno = 77;
            long result = TABLE[at].call();
            int error = errno;
            // Descriptors have other numbers.
            printf("%s, %s: %s, %s\n", TABLE[at].name, kind, result < 0 ? "failed" : "done", strerror(error));
            fflush(stdout);
            _exit(0);
        }
        int state;
        waitpid(child, &state, 0);
        if (WIFSIGNALED(state))
            printf("%s, %s: ended by %s\n", TABLE[at].name, kind, strsignal(WTERMSIG(state)));
    }
}

static int refuse(void) {
    file = open("/etc/passwd", O_RDONLY);
    other = memfd_create("copy", 0);
    socketpair(AF_UNIX, SOCK_STREAM, 0, sockets);
    refused = (void *)16;
    try_all("a bad address");
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *memory = mmap(NULL, 3 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(memory + 2 * page, page);
    memset(memory, 'a', 2 * page);
    refused = memory;
    try_all("a name without an end");
    static const char MISSING[] = "/missing/name";
    refused = memcpy(memory + 2 * page - sizeof MISSING, MISSING, sizeof MISSING);
    try_all("a name at the end of the memory");
    return 0;
}

static void *reads(void *arg) {
    while (read(*(int *)arg, buffer, sizeof buffer) > 0) {
    }
    return NULL;
}

static int waits(const char *path) {
    // A call that hangs ends the program.
    alarm(300);
    for (int by_child = 0; by_child < 2; by_child++) {
        int *fd = malloc(sizeof *fd);
        *fd = open(path, O_RDONLY);
        assert(*fd >= 0);
        pthread_t thread;
        pid_t child = -1;
        if (by_child && (child = fork()) == 0)
            reads(fd);
        assert(!by_child || child > 0);
        if (!by_child)
            pthread_create(&thread, NULL, reads, fd);
        usleep(300000);
        close(*fd);
        // Else the thread would read the second file: the child could not be killed while it waits for the thread.
        assert(open("/dev/null", O_RDONLY) == *fd);
        printf("closed %d\n", by_child);
        if (by_child) {
            kill(child, SIGKILL);
            waitpid(child, NULL, 0);
        }
    }
    // The thread still reads.
    return 0;
}

static volatile int is_over;

static void *maps(void *arg) {
    for (int n = 0; n < 400; n++) {
        int fd = *(int *)arg;
        volatile char *at = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
        (void)*at;
        munmap((void *)at, 4096);
        assert(pread(fd, buffer, 10, 10) == 10);
        assert(lseek(fd, n % 2, SEEK_SET) >= 0);
        assert(read(fd, buffer, 10) == 10);
    }
    is_over = 1;
    return NULL;
}

static int open_above(int first) {
    int open = 0;
    for (int fd = first; fd < 64; fd++)
        open += fcntl(fd, F_GETFD) >= 0;
    return open;
}

static int descriptors(const char *path) {
    int fd = open(path, O_RDONLY), low = dup(0), other_numbers = 0, inherited = 0, before = open_above(low + 1);
    pthread_t thread;
    pthread_create(&thread, NULL, maps, &fd);
    for (int n = 0; !is_over; n++) {
        close(low);
        int found = open("/dev/null", O_WRONLY);
        if (found != low) {
            other_numbers++;
            close(found);
            open("/dev/null", O_WRONLY);
        }
        pid_t child = n % 100 ? -1 : fork();
        if (child == 0)
            _exit(open_above(low + 1) != before);
        int state = 0;
        if (child > 0)
            waitpid(child, &state, 0);
        inherited += state != 0;
    }
    pthread_join(thread, NULL);
    printf("descriptors with other numbers: %d; children that inherit one: %d\n", other_numbers, inherited);
    return 0;
}

static int locked(const char *path) {
    if (mlockall(MCL_FUTURE) != 0)
        return 1;
    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    int fd = open(path, O_RDONLY);
    posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
    assert(read(fd, buffer, sizeof buffer) == sizeof buffer);
    getrusage(RUSAGE_SELF, &after);
    close(fd);
    long read_sectors = after.ru_inblock - before.ru_inblock;
    printf("read from the disk: %s\n", read_sectors > 2048 ? "more than 1 MiB" : "little");
    return 0;
}

static int limited(const char *directory) {
    int from = open(directory, O_TMPFILE | O_RDWR, 0600), to = open(directory, O_TMPFILE | O_RDWR, 0600);
    assert(from >= 0 && to >= 0 && ftruncate(from, 16 << 20) == 0);
    struct rlimit limit = {8 << 20, 8 << 20};
    setrlimit(RLIMIT_FSIZE, &limit);
    ssize_t copied = copy_file_range(from, NULL, to, NULL, 16 << 20, 0);
    printf("copied %zd\n", copied);
    return 0;
}

static int shares(const char *path) {
    int fd = open(path, O_RDONLY);
    assert(read(fd, buffer, sizeof buffer) == sizeof buffer);
    pid_t child = vfork();
    if (child == 0) {
        close(fd);
        execl("/missing/program", "program", (char *)NULL);
        close_range(3, 1000, 0);
        _exit(7);
    }
    int state;
    waitpid(child, &state, 0);
    printf("child: %d, position: %ld\n", WEXITSTATUS(state), (long)lseek(fd, 0, SEEK_CUR));
    assert(read(fd, buffer, sizeof buffer) == sizeof buffer);
    return 0;
}

static int filtered(char **words) {
    struct sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {1, &allow};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0)
        execvp(words[0], words);
    return 99;
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "", *path = argc > 2 ? argv[2] : "";
    if (!strcmp(what, "refused"))
        return refuse();
    if (!strcmp(what, "waits"))
        return waits(path);
    if (!strcmp(what, "descriptors"))
        return descriptors(path);
    if (!strcmp(what, "locked"))
        return locked(path);
    if (!strcmp(what, "limited"))
        return limited(path);
    if (!strcmp(what, "filtered"))
        return filtered(argv + 2);
    if (!strcmp(what, "vfork"))
        return shares(path);
    return 2;
}
