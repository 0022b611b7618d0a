/* The common parts of the test programs. A program has cases: without arguments it prints their names, and with a name it
 * runs that case in the current directory. With the options of Rust's test programs it lists or runs all of them as those
 * do (`make test-kernels-capi`). */
#ifndef TEST_H
#define TEST_H

#define _GNU_SOURCE

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <nowait.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                                            \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

/* Checks that two integers are equal, and prints both if they are not. */
#define EQUAL(a, b)                                                                                                    \
    do {                                                                                                               \
        long long left_ = (long long)(a), right_ = (long long)(b);                                                     \
        if (left_ != right_) {                                                                                         \
            fprintf(stderr, "%s:%d: %s is %lld, and %s is %lld\n", __FILE__, __LINE__, #a, left_, #b, right_);         \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

/* A step that takes this many seconds hangs. A case has several steps. */
enum { HANGS = 300 };

struct test_case {
    const char *name;
    void (*run)(void);
};

/* Runs each case in a child, on both backends, in a directory of its own. */
static int run_all(const struct test_case *cases, size_t count)
{
    static const char *const backends[] = {"uring", "threads"};
    int passed = 0, failed = 0;
    for (size_t i = 0; i < 2 * count; i++) {
        const char *backend = backends[i % 2], *name = cases[i / 2].name;
        char directory[100], command[120];
        int status = -1;
        fflush(stdout);
        snprintf(directory, sizeof directory, "/tmp/nowait-capi-%d-%zu", getpid(), i);
        snprintf(command, sizeof command, "rm -rf %s", directory);
        EQUAL(mkdir(directory, 0700), 0);
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            alarm(3 * HANGS);
            CHECK(chdir(directory) == 0);
            setenv("NOWAIT_BACKEND", backend, 1);
            cases[i / 2].run();
            exit(0);
        }
        CHECK(waitpid(child, &status, 0) == child);
        CHECK(system(command) == 0);
        printf("test %s_on_%s ... %s\n", name, backend, status == 0 ? "ok" : "FAILED");
        *(status == 0 ? &passed : &failed) += 1;
    }
    printf("test result: %s. %d passed; %d failed;\n", failed == 0 ? "ok" : "FAILED", passed, failed);
    return failed > 0;
}

/* Makes a system call fail in this process, as sandboxes of containers do. */
static void deny(unsigned int number, unsigned int error)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    EQUAL(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    EQUAL(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

/* Denies of the calls that the library makes those that Docker's default profile denies: io_uring. */
static void deny_as_in_containers(void)
{
    deny(SYS_io_uring_setup, EPERM);
    deny(SYS_io_uring_enter, EPERM);
    deny(SYS_io_uring_register, EPERM);
}

static int run_case(const struct test_case *cases, size_t count, int argc, char **argv)
{
    int lists = argc > 1 && strcmp(argv[1], "--list") == 0;
    if (argc > 1 && !lists && strncmp(argv[1], "--", 2) == 0)
        return run_all(cases, count);
    for (size_t i = 0; i < count; i++) {
        if (argc == 1 || lists)
            printf("%s%s\n", cases[i].name, lists ? ": test" : "");
        else if (strcmp(argv[1], cases[i].name) == 0) {
            if (getenv("NOWAIT_CONTAINER") != NULL)
                deny_as_in_containers();
            cases[i].run();
            return 0;
        }
    }
    return argc == 1 || lists ? 0 : 2;
}

/* valgrind reports memory that is not valid also if the kernel is meant to refuse it, and reads the first bytes of each
 * file that is mapped. */
static int is_under_valgrind(void)
{
    return getenv("NOWAIT_VALGRIND") != NULL;
}

static unsigned char byte_at(size_t offset)
{
    return (unsigned char)(offset * 7 + offset / 251);
}

/* Makes a file of `size` bytes, each of which depends on its offset, and returns a descriptor of it. */
static int make_file(const char *name, size_t size)
{
    unsigned char *bytes = malloc(size + 1);
    int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(fd >= 0 && bytes != NULL);
    for (size_t i = 0; i < size; i++)
        bytes[i] = byte_at(i);
    EQUAL(write(fd, bytes, size), size);
    EQUAL(fsync(fd), 0);
    free(bytes);
    return fd;
}

static void check_bytes(const void *buf, size_t offset, size_t len)
{
    for (size_t i = 0; i < len; i++)
        EQUAL(((const unsigned char *)buf)[i], byte_at(offset + i));
}

/* Drops the file's pages from the page cache. A page that another processor has just used needs another call. */
static void evict(int fd)
{
    struct nw_residency sum = {.size = sizeof sum};
    EQUAL(fsync(fd), 0);
    for (int tries = 0; tries < 1000; tries++) {
        EQUAL(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
        if (nw_residency(fd, 0, 1 << 30, &sum) != 0 || sum.cached == 0 || is_under_valgrind())
            return;
        usleep(1000);
    }
    CHECK(!"the file can be evicted");
}

#endif
