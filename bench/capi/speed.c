/* libnowait beside system calls and liburing: the cost of a hit, of nothing, and of hits in batches.
 *
 * The contenders take turns in each round, on the same cached file and the same offsets. A ratio is libnowait's time divided
 * by the other's within a round; the table has the median of the rounds and its range of 95 %. `make bench-capi` builds and
 * runs it. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <liburing.h>
#include <linux/fs.h>
#include <nowait.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 21, CALLS = 200000, BATCH = 64, BLOCK = 4096, BLOCKS = 4096 };

static int fd;
static struct nw_file *file;
static struct nw_engine *engine;
static struct io_uring ring;
static char *bufs; /* BATCH blocks */
static unsigned seed;

static void fail(const char *what)
{
    fprintf(stderr, "speed: %s failed\n", what);
    exit(1);
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static off_t place(void)
{
    return (off_t)(rand_r(&seed) % BLOCKS) * BLOCK;
}

static void preadv2_by_syscall(void)
{
    for (int i = 0; i < CALLS; i++) {
        struct iovec iov = {bufs, BLOCK};
        if (syscall(SYS_preadv2, fd, &iov, 1, place(), 0, RWF_NOWAIT) != BLOCK)
            fail("preadv2");
    }
}

static void pread_cached(void)
{
    size_t n;
    for (int i = 0; i < CALLS; i++)
        if (nw_pread_cached(fd, bufs, BLOCK, place(), &n) != NW_CACHED_ALL || n != BLOCK)
            fail("nw_pread_cached");
}

static void liburing_batches(int is_read)
{
    for (int i = 0; i < CALLS; i += BATCH) {
        struct io_uring_cqe *cqe;
        unsigned head, count = 0;
        for (int j = 0; j < BATCH; j++) {
            struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);
            if (is_read)
                io_uring_prep_read(sqe, fd, bufs + j * BLOCK, BLOCK, (unsigned long long)place());
            else
                io_uring_prep_nop(sqe);
            io_uring_sqe_set_data64(sqe, (unsigned long long)j);
        }
        if (io_uring_submit_and_wait(&ring, BATCH) != BATCH)
            fail("io_uring_submit_and_wait");
        io_uring_for_each_cqe(&ring, head, cqe)
        {
            if (cqe->res != (is_read ? BLOCK : 0))
                fail("an operation of liburing");
            count++;
        }
        io_uring_cq_advance(&ring, count);
        if (count != BATCH)
            fail("liburing");
    }
}

static void nowait_batches(int is_read)
{
    struct nw_completion done[BATCH];
    struct nw_op ops[BATCH];
    memset(ops, 0, sizeof ops);
    for (int i = 0; i < CALLS; i += BATCH) {
        for (int j = 0; j < BATCH; j++) {
            ops[j].opcode = is_read ? NW_OP_READ : NW_OP_NOP;
            ops[j].user_data = (uint64_t)j;
            if (is_read) {
                ops[j].file = file;
                ops[j].addr = bufs + j * BLOCK;
                ops[j].len = BLOCK;
                ops[j].offset = (uint64_t)place();
            }
        }
        if (nw_submit_batch(engine, ops, BATCH) != BATCH || nw_reap(engine, done, BATCH, BATCH, NULL) != BATCH)
            fail("a batch of libnowait");
        for (int j = 0; j < BATCH; j++)
            if (done[j].result != (is_read ? BLOCK : 0))
                fail("an operation of libnowait");
    }
}

static void liburing_nops(void) { liburing_batches(0); }
static void nowait_nops(void) { nowait_batches(0); }
static void liburing_hits(void) { liburing_batches(1); }
static void nowait_hits(void) { nowait_batches(1); }

static double time_of(void (*run)(void), int round)
{
    double start;
    seed = (unsigned)round;
    start = now();
    run();
    return (now() - start) * 1e9 / CALLS;
}

static int compare(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return left < right ? -1 : left > right;
}

static void measure(const char *what, const char *other_name, void (*ours)(void), void (*other)(void))
{
    double ratios[ROUNDS], our_ns[ROUNDS], other_ns[ROUNDS];
    for (int round = -1; round < ROUNDS; round++) {
        double a, b;
        /* Each begins in every other round. The first round warms up. */
        if (round % 2 == 0) {
            a = time_of(ours, round);
            b = time_of(other, round);
        } else {
            b = time_of(other, round);
            a = time_of(ours, round);
        }
        if (round >= 0) {
            ratios[round] = a / b;
            our_ns[round] = a;
            other_ns[round] = b;
        }
    }
    qsort(ratios, ROUNDS, sizeof *ratios, compare);
    qsort(our_ns, ROUNDS, sizeof *our_ns, compare);
    qsort(other_ns, ROUNDS, sizeof *other_ns, compare);
    printf("| %s | %.0f | %s | %.0f | %.3f (%.3f-%.3f) |\n", what, our_ns[ROUNDS / 2], other_name, other_ns[ROUNDS / 2],
           ratios[ROUNDS / 2], ratios[5], ratios[ROUNDS - 6]);
}

int main(int argc, char **argv)
{
    struct nw_engine_options options = {.size = sizeof options, .flags = NW_ENGINE_LOCAL, .depth = BATCH};
    if (argc != 2) {
        fprintf(stderr, "usage: speed FILE (it is made with %d bytes)\n", BLOCK * BLOCKS);
        return 2;
    }
    fd = open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0600);
    bufs = aligned_alloc(BLOCK, BATCH * BLOCK);
    if (fd < 0 || bufs == NULL)
        fail(argv[1]);
    memset(bufs, 1, BATCH * BLOCK);
    for (int i = 0; i < BLOCKS; i += BATCH)
        if (write(fd, bufs, BATCH * BLOCK) != BATCH * BLOCK)
            fail("write");
    fsync(fd);
    if (nw_file_open(fd, &file) < 0 || nw_engine_create(&options, &engine) < 0)
        fail("libnowait");
    if (io_uring_queue_init(BATCH, &ring, IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN) < 0)
        fail("io_uring_queue_init");
    puts("| libnowait | ns | beside | ns | ratio |\n| --- | ---: | --- | ---: | ---: |");
    measure("nw_pread_cached, 4 KiB", "preadv2 by syscall()", pread_cached, preadv2_by_syscall);
    measure("64 nops in a batch", "liburing", nowait_nops, liburing_nops);
    measure("64 hits of 4 KiB in a batch", "liburing", nowait_hits, liburing_hits);
    nw_engine_destroy(engine);
    nw_file_close(file);
    io_uring_queue_exit(&ring);
    unlink(argv[1]);
    return 0;
}
