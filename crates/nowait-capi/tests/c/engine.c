/* The engines and mappings. */
#include "test.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>

static struct nw_engine *make(uint32_t flags, uint32_t depth)
{
    struct nw_engine_options options = {.size = sizeof options, .flags = flags, .depth = depth};
    struct nw_engine *engine;
    EQUAL(nw_engine_create(&options, &engine), 0);
    return engine;
}

/* Runs a test on a shared and on a local engine. */
static void on_both(void (*test)(struct nw_engine *engine))
{
    for (uint32_t flags = 0; flags <= NW_ENGINE_LOCAL; flags++) {
        struct nw_engine *engine = make(flags, 0);
        test(engine);
        EQUAL(nw_engine_in_flight(engine), 0);
        EQUAL(nw_engine_destroy(engine), 0);
    }
}

static struct nw_file *file_of(int fd)
{
    struct nw_file *file;
    EQUAL(nw_file_open(fd, &file), 0);
    return file;
}

/* Waits for the only operation in flight, whose function has returned `said`. Returns its result. */
static int64_t outcome(struct nw_engine *engine, int said, struct nw_completion *done, uint64_t user_data)
{
    if (said < 0)
        return said;
    if (said == NW_QUEUED)
        EQUAL(nw_reap(engine, done, 1, 1, NULL), 1);
    else
        EQUAL(said, NW_DONE);
    EQUAL(done->user_data, user_data);
    return done->result;
}

/* Submits one operation and waits for it. */
static int64_t run(struct nw_engine *engine, const struct nw_op *op)
{
    struct nw_completion done;
    return outcome(engine, nw_submit(engine, op, &done), &done, op->user_data);
}

/* Reads a whole file, and waits for it. */
static int64_t read_file(struct nw_engine *engine, const char *path, void *buf, size_t len)
{
    struct nw_completion done;
    int said = nw_read_file(engine, path, buf, len, 77, &done);
    int64_t n = outcome(engine, said, &done, 77);
    if (said == NW_DONE && n >= 0)
        EQUAL(done.cached, n);
    return n;
}

static void whole_files(struct nw_engine *engine)
{
    static char buf[400001], own[8192];
    int fd = make_file("whole", 100000);
    for (int cold = 0; cold < 2; cold++) {
        /* More than the file, all of it, and less. */
        for (size_t len = 100001; len >= 99999; len--) {
            if (cold)
                evict(fd);
            memset(buf, 0x55, sizeof buf);
            EQUAL(read_file(engine, "whole", buf, len), len > 100000 ? 100000 : len);
            check_bytes(buf, 0, len > 100000 ? 100000 : len);
            EQUAL(buf[len], 0x55);
        }
        EQUAL(read_file(engine, "whole", buf, 0), 0);
    }
    close(make_file("large", 400000));
    EQUAL(read_file(engine, "large", buf, sizeof buf), 400000);
    check_bytes(buf, 0, 400000);
    close(make_file("empty", 0));
    EQUAL(read_file(engine, "empty", buf, sizeof buf), 0);
    /* procfs reports a size of 0. */
    int version = open("/proc/version", O_RDONLY);
    ssize_t n = read(version, own, sizeof own);
    EQUAL(read_file(engine, "/proc/version", buf, sizeof buf), n);
    CHECK(memcmp(buf, own, n) == 0);
    close(version);

    EQUAL(read_file(engine, "no such file", buf, sizeof buf), -ENOENT);
    EQUAL(read_file(engine, "", buf, sizeof buf), -ENOENT);
    EQUAL(read_file(engine, ".", buf, sizeof buf), -EISDIR);
    EQUAL(read_file(engine, "whole/below", buf, sizeof buf), -ENOTDIR);
    /* A FIFO is not opened: its writer would see it. */
    EQUAL(mkfifo("fifo", 0600), 0);
    EQUAL(read_file(engine, "fifo", buf, sizeof buf), -EINVAL);
    EQUAL(unlink("fifo"), 0);
    if (!is_under_valgrind()) {
        EQUAL(read_file(engine, "whole", (void *)4096, 1000), -EFAULT);
        evict(fd);
        EQUAL(read_file(engine, "whole", (void *)4096, 1000), -EFAULT);
    }

    struct nw_completion done;
    EQUAL(nw_read_file(engine, NULL, buf, 1, 0, &done), -EFAULT);
    EQUAL(nw_read_file(engine, "whole", NULL, 1, 0, &done), -EFAULT);
    EQUAL(nw_read_file(engine, "whole", buf, 1, 0, NULL), -EFAULT);
    EQUAL(nw_read_file(engine, "whole", buf, SIZE_MAX, 0, &done), -EINVAL);
    EQUAL(nw_read_file(NULL, "whole", buf, 1, 0, &done), -EFAULT);
    close(fd);
}

static void whole_files_are_read_until_the_memory_is_full(void)
{
    on_both(whole_files);
    /* A strict engine reads only what is cached in the calling thread. */
    struct nw_engine *strict = make(NW_ENGINE_STRICT, 1);
    whole_files(strict);
    char one[10], other[10];
    struct nw_completion done[2];
    int fd = make_file("cold", 100000);
    evict(fd);
    if (!is_under_valgrind()) {
        EQUAL(nw_read_file(strict, "cold", one, sizeof one, 1, &done[0]), NW_QUEUED);
        CHECK(done[0].ticket > 0);
        /* The engine has room for one operation. */
        int said = nw_read_file(strict, "no such file either", other, sizeof other, 2, &done[1]);
        CHECK(said == NW_FULL || said == NW_DONE);
        EQUAL(nw_reap(strict, done, 2, 1, NULL), 1);
        EQUAL(done[0].user_data, 1);
        EQUAL(done[0].result, sizeof one);
        EQUAL(done[0].served_by, NW_BY_WORKER);
        check_bytes(one, 0, sizeof one);
    }
    EQUAL(nw_engine_destroy(strict), 0);
    /* An engine that never tries the page cache. */
    struct nw_engine *never = make(NW_ENGINE_TRY_NEVER, 1);
    for (int times = 0; times < 3; times++) {
        EQUAL(nw_read_file(never, "cold", one, sizeof one, 1, &done[0]), NW_QUEUED);
        EQUAL(nw_reap(never, done, 1, 1, NULL), 1);
        EQUAL(done[0].result, sizeof one);
    }
    EQUAL(nw_engine_destroy(never), 0);
    close(fd);
}

static void every_operation(struct nw_engine *engine)
{
    int fd = make_file("file", 100000);
    struct nw_file *file = file_of(fd);
    char buf[5000], part[3000];
    struct nw_op op = {.opcode = NW_OP_READ, .file = file, .addr = buf, .len = sizeof buf, .offset = 77, .user_data = 1};
    EQUAL(run(engine, &op), 5000);
    check_bytes(buf, 77, 5000);
    evict(fd);
    EQUAL(run(engine, &op), 5000);
    check_bytes(buf, 77, 5000);
    op.offset = 99000;
    EQUAL(run(engine, &op), 1000);
    EQUAL(lseek(fd, 500, SEEK_SET), 500);
    op.offset = NW_OFFSET_CURRENT;
    op.len = 100;
    EQUAL(run(engine, &op), 100);
    check_bytes(buf, 500, 100);
    EQUAL(lseek(fd, 0, SEEK_CUR), 600);

    struct iovec iov[2] = {{buf, 1000}, {part, sizeof part}};
    op = (struct nw_op){.opcode = NW_OP_READV, .file = file, .addr = iov, .len = 2, .offset = 5, .user_data = 2};
    EQUAL(run(engine, &op), 4000);
    check_bytes(buf, 5, 1000);
    check_bytes(part, 1005, 3000);
    op.opcode = NW_OP_WRITEV;
    EQUAL(run(engine, &op), 4000);
    op = (struct nw_op){.opcode = NW_OP_WRITE, .file = file, .addr = "word", .len = 4, .offset = 200000, .user_data = 3};
    EQUAL(run(engine, &op), 4);
    EQUAL(pread(fd, buf, 10, 200000), 4);
    CHECK(memcmp(buf, "word", 4) == 0);
    op = (struct nw_op){.opcode = NW_OP_FSYNC, .file = file};
    EQUAL(run(engine, &op), 0);
    op.opcode = NW_OP_FDATASYNC;
    EQUAL(run(engine, &op), 0);
    op = (struct nw_op){.opcode = NW_OP_SYNC_FILE_RANGE, .file = file, .flags = SYNC_FILE_RANGE_WRITE};
    EQUAL(run(engine, &op), 0);
    op = (struct nw_op){.opcode = NW_OP_FADVISE, .file = file, .flags = POSIX_FADV_DONTNEED};
    EQUAL(run(engine, &op), 0);
    op = (struct nw_op){.opcode = NW_OP_FALLOCATE, .file = file, .len = 300000};
    int64_t said = run(engine, &op);
    CHECK(said == 0 || said == -EOPNOTSUPP);
    struct statx stat;
    memset(&stat, 9, sizeof stat);
    op = (struct nw_op){.opcode = NW_OP_STATX, .file = file, .addr = &stat, .len = STATX_SIZE, .user_data = 4};
    EQUAL(run(engine, &op), 0);
    EQUAL(stat.stx_size, said == 0 ? 300000 : 200004);
    op = (struct nw_op){.opcode = NW_OP_OPENAT, .addr = "file", .flags = O_RDONLY, .user_data = 5};
    int opened = (int)run(engine, &op);
    CHECK(opened >= 0);
    EQUAL(fcntl(opened, F_GETFD), FD_CLOEXEC);
    EQUAL(close(opened), 0);
    op.addr = "missing";
    EQUAL(run(engine, &op), -ENOENT);
    op = (struct nw_op){.opcode = NW_OP_NOP, .user_data = 6};
    EQUAL(run(engine, &op), 0);
    EQUAL(nw_file_close(file), 0);
    EQUAL(fcntl(fd, F_GETFD), 0);
    close(fd);
}

static void each_operation_is_that_of_its_system_call(void)
{
    on_both(every_operation);
}

static void batches(struct nw_engine *engine)
{
    enum { OPS = 300, LEN = 1000 };
    int fd = make_file("file", OPS * LEN);
    struct nw_file *file = file_of(fd);
    static char bufs[OPS][LEN];
    static struct nw_op ops[OPS];
    static struct nw_completion done[OPS];
    static int seen[OPS];
    for (int warm = 0; warm < 2; warm++) {
        memset(bufs, 0, sizeof bufs);
        memset(seen, 0, sizeof seen);
        for (int i = 0; i < OPS; i++)
            ops[i] = (struct nw_op){.opcode = NW_OP_READ, .file = file, .addr = bufs[i], .len = LEN,
                                    .offset = (uint64_t)i * LEN, .user_data = (uint64_t)i};
        if (!warm)
            evict(fd);
        EQUAL(nw_submit_batch(engine, ops, OPS), OPS);
        /* The file is in use, and so is the engine. */
        EQUAL(nw_file_close(file), -EBUSY);
        EQUAL(nw_engine_destroy(engine), -EBUSY);
        /* Less room than there are completions: none is lost, and the eventfd stays readable. */
        int taken = 0;
        while (taken < OPS) {
            struct pollfd ready = {.fd = nw_engine_event_fd(engine), .events = POLLIN};
            EQUAL(poll(&ready, 1, 10000), 1);
            int n = nw_reap(engine, done, 7, 0, NULL);
            CHECK(n >= 0 && n <= 7);
            for (int i = 0; i < n; i++) {
                size_t at = done[i].user_data;
                EQUAL(done[i].result, LEN);
                EQUAL(done[i].cached + done[i].device + done[i].unknown, LEN);
                EQUAL(seen[at]++, 0);
                check_bytes(bufs[at], at * LEN, LEN);
            }
            taken += n;
        }
        EQUAL(nw_reap(engine, done, OPS, 1, NULL), 0);
        EQUAL(nw_engine_in_flight(engine), 0);
    }
    EQUAL(nw_submit_batch(engine, NULL, 0), 0);
    EQUAL(nw_submit_batch(engine, NULL, 1), -EFAULT);
    /* An invalid operation ends the batch. */
    ops[2].opcode = 99;
    EQUAL(nw_submit_batch(engine, ops, 5), 2);
    EQUAL(nw_reap(engine, done, 5, 2, NULL), 2);
    EQUAL(nw_submit_batch(engine, ops + 2, 3), -EINVAL);
    EQUAL(nw_file_close(file), 0);
    close(fd);
}

static void a_batch_is_reaped_in_any_pieces(void)
{
    on_both(batches);
}

static void a_full_engine_says_so(void)
{
    for (uint32_t flags = 0; flags <= NW_ENGINE_LOCAL; flags++) {
        struct nw_engine *engine = make(flags, 2);
        int ends[2];
        char bytes[3];
        struct nw_completion done[3];
        EQUAL(pipe(ends), 0);
        struct nw_file *file = file_of(ends[0]);
        for (int i = 0; i < 3; i++) {
            struct nw_op op = {.opcode = NW_OP_READ, .file = file, .addr = bytes + i, .len = 1,
                               .offset = NW_OFFSET_CURRENT, .user_data = (uint64_t)i};
            EQUAL(nw_submit(engine, &op, &done[i]), i < 2 ? NW_QUEUED : NW_FULL);
        }
        EQUAL(nw_engine_in_flight(engine), 2);
        /* One gets a byte, the other is cancelled. Both have one completion. */
        EQUAL(write(ends[1], "x", 1), 1);
        struct nw_completion first;
        EQUAL(nw_reap(engine, &first, 1, 1, NULL), 1);
        EQUAL(first.result, 1);
        EQUAL(nw_cancel(engine, done[first.user_data == 0 ? 1 : 0].ticket), 0);
        EQUAL(nw_reap(engine, &first, 1, 1, NULL), 1);
        EQUAL(first.result, -ECANCELED);
        EQUAL(nw_file_close(file), 0);
        EQUAL(nw_engine_destroy(engine), 0);
        EQUAL(nw_engine_destroy(engine), -EBADF);
        EQUAL(nw_engine_in_flight(engine), -EBADF);
        CHECK(nw_engine_why(engine) == NULL);
        close(ends[0]);
        close(ends[1]);
    }
}

/* One call of the kernel takes 1024 iovecs. */
static void takes_long_lists(struct nw_engine *engine)
{
    enum { PIECES = 2500 };
    static unsigned char bytes[3 * PIECES], back[3 * PIECES];
    static struct iovec iov[PIECES];
    int fd = make_file("file", 100);
    struct nw_file *file = file_of(fd);
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = byte_at(i);
    for (size_t i = 0; i < PIECES; i++)
        iov[i] = (struct iovec){bytes + 3 * i, 3};
    struct nw_op op = {.opcode = NW_OP_WRITEV, .file = file, .addr = iov, .len = PIECES};
    EQUAL(run(engine, &op), sizeof bytes);
    for (size_t i = 0; i < PIECES; i++)
        iov[i].iov_base = back + 3 * i;
    op.opcode = NW_OP_READV;
    EQUAL(run(engine, &op), sizeof back);
    check_bytes(back, 0, sizeof back);
    op.len = UINT64_MAX / sizeof *iov;
    EQUAL(run(engine, &op), -EINVAL);
    EQUAL(nw_file_close(file), 0);
    close(fd);
}

static void a_list_may_be_longer_than_one_call_takes(void)
{
    on_both(takes_long_lists);
}

/* A completion is in flight until it is reaped, also one for which an nw_reap had no room. */
static void completions_count_until_they_are_reaped(void)
{
    enum { DEPTH = 64 };
    for (uint32_t flags = 0; flags <= NW_ENGINE_LOCAL; flags++) {
        struct nw_engine *engine = make(flags, DEPTH);
        static struct nw_op ops[DEPTH];
        struct nw_completion done;
        for (int round = 0; round < 50; round++) {
            EQUAL(nw_submit_batch(engine, ops, DEPTH), round == 0 ? DEPTH : 1);
            EQUAL(nw_submit_batch(engine, ops, DEPTH), 0);
            EQUAL(nw_engine_in_flight(engine), DEPTH);
            EQUAL(nw_reap(engine, &done, 1, 1, NULL), 1);
            EQUAL(nw_engine_destroy(engine), -EBUSY);
        }
        for (int left = DEPTH - 1; left > 0; left--)
            EQUAL(nw_reap(engine, &done, 1, 1, NULL), 1);
        EQUAL(nw_engine_in_flight(engine), 0);
        EQUAL(nw_engine_destroy(engine), 0);
    }
}

/* The completions that one thread has reaped, and the end of that thread. */
static atomic_int reaped_elsewhere, ends_elsewhere;

static void *reap_one_by_one(void *engine)
{
    struct nw_completion done;
    while (!ends_elsewhere) {
        EQUAL(nw_reap(engine, &done, 1, 1, NULL), 1);
        reaped_elsewhere++;
    }
    return NULL;
}

/* A thread that takes one of two completions leaves the other to the thread that waits for one. */
static void a_poll_leaves_completions_to_a_waiting_thread(void)
{
    struct nw_engine *engine = make(0, 64);
    int ends[2];
    char byte;
    struct nw_completion done;
    pthread_t thread;
    struct nw_op nops[2] = {{.opcode = NW_OP_NOP}};
    EQUAL(pipe(ends), 0);
    struct nw_file *file = file_of(ends[0]);
    /* An operation that does not complete: the thread waits for something. */
    struct nw_op op = {.opcode = NW_OP_READ, .file = file, .addr = &byte, .len = 1, .offset = NW_OFFSET_CURRENT};
    EQUAL(nw_submit(engine, &op, &done), NW_QUEUED);
    EQUAL(pthread_create(&thread, NULL, reap_one_by_one, engine), 0);
    /* valgrind runs one thread at a time, and a thread that polls gives way to no other. */
    for (int round = 0; round < (is_under_valgrind() ? 20 : 300); round++) {
        int mine = 0;
        reaped_elsewhere = 0;
        EQUAL(nw_submit_batch(engine, nops, 2), 2);
        while (mine == 0 && reaped_elsewhere < 2) {
            mine = nw_reap(engine, &done, 1, 0, NULL);
            if (is_under_valgrind())
                usleep(1);
        }
        for (int waited = 0; mine + reaped_elsewhere < 2; waited++) {
            CHECK(waited < 1000 * HANGS);
            usleep(1000);
        }
        EQUAL(mine + reaped_elsewhere, 2);
    }
    ends_elsewhere = 1;
    EQUAL(write(ends[1], "x", 1), 1);
    EQUAL(pthread_join(thread, NULL), 0);
    EQUAL(nw_file_close(file), 0);
    EQUAL(nw_engine_destroy(engine), 0);
    close(ends[0]);
    close(ends[1]);
}

static void times_out(struct nw_engine *engine)
{
    int ends[2];
    char byte;
    struct nw_completion done;
    EQUAL(pipe(ends), 0);
    struct nw_file *file = file_of(ends[0]);
    struct nw_op op = {.opcode = NW_OP_READ, .file = file, .addr = &byte, .len = 1, .offset = NW_OFFSET_CURRENT,
                       .timeout_ns = 1000000};
    EQUAL(run(engine, &op), -ETIME);
    op.timeout_ns = 0;
    EQUAL(nw_submit(engine, &op, &done), NW_QUEUED);
    struct timespec soon = {0, 1000000};
    EQUAL(nw_reap(engine, &done, 1, 1, &soon), 0);
    EQUAL(nw_reap(engine, &done, 1, 0, NULL), 0);
    EQUAL(write(ends[1], "y", 1), 1);
    EQUAL(nw_reap(engine, &done, 1, 1, NULL), 1);
    EQUAL(byte, 'y');
    struct timespec wrong = {0, 1000000000};
    EQUAL(nw_reap(engine, &done, 1, 1, &wrong), -EINVAL);
    EQUAL(nw_reap(engine, &done, 0, 0, NULL), -EINVAL);
    EQUAL(nw_reap(engine, &done, 1, 2, NULL), -EINVAL);
    EQUAL(nw_reap(engine, NULL, 1, 0, NULL), -EFAULT);
    EQUAL(nw_file_close(file), 0);
    close(ends[0]);
    close(ends[1]);
}

static void waits_end_at_their_time(void)
{
    on_both(times_out);
}

static void refuses(struct nw_engine *engine)
{
    int fd = make_file("file", 1000);
    struct nw_file *file = file_of(fd);
    struct nw_completion done;
    char buf[10];
    struct nw_op op = {.opcode = NW_OP_READ, .file = file, .addr = buf, .len = 10};
    EQUAL(nw_submit(NULL, &op, &done), -EFAULT);
    EQUAL(nw_submit(engine, NULL, &done), -EFAULT);
    EQUAL(nw_submit(engine, &op, NULL), -EFAULT);
    op.addr = NULL;
    EQUAL(nw_submit(engine, &op, &done), -EFAULT);
    op.addr = buf;
    op.file = NULL;
    EQUAL(nw_submit(engine, &op, &done), -EFAULT);
    op.file = file;
    op.mapping = (const struct nw_mapping *)file;
    EQUAL(nw_submit(engine, &op, &done), -EINVAL);
    op.mapping = NULL;
    op.opcode = 13;
    EQUAL(nw_submit(engine, &op, &done), -EINVAL);
    op.opcode = NW_OP_READ;
    op.len = UINT64_MAX;
    EQUAL(nw_submit(engine, &op, &done), -EINVAL);
    op.len = 10;
    op.flags = 1u << 30;
    EQUAL(run(engine, &op), -EOPNOTSUPP);
    op.flags = 0;
    if (!is_under_valgrind()) {
        /* Memory that is not mapped. */
        op.addr = (void *)16;
        EQUAL(run(engine, &op), -EFAULT);
    }
    op = (struct nw_op){.opcode = NW_OP_FSYNC, .file = file, .flags = 1};
    EQUAL(nw_submit(engine, &op, &done), -EINVAL);
    op = (struct nw_op){.opcode = NW_OP_STATX, .file = file, .len = STATX_SIZE};
    EQUAL(nw_submit(engine, &op, &done), -EFAULT);
    op = (struct nw_op){.opcode = NW_OP_OPENAT};
    EQUAL(nw_submit(engine, &op, &done), -EFAULT);
    op = (struct nw_op){.opcode = NW_OP_FADVISE, .file = file, .flags = 77};
    EQUAL(nw_submit(engine, &op, &done), -EINVAL);
    op = (struct nw_op){.opcode = NW_OP_READV, .file = file, .len = 1};
    EQUAL(nw_submit(engine, &op, &done), -EFAULT);
    EQUAL(nw_file_close(file), 0);
    op = (struct nw_op){.opcode = NW_OP_READ, .file = file, .addr = buf, .len = 10};
    EQUAL(nw_submit(engine, &op, &done), -EBADF);
    close(fd);
}

static void bad_operations_are_refused(void)
{
    struct nw_engine *engine;
    on_both(refuses);
    struct nw_engine_options options = {.size = sizeof options, .flags = 1u << 31};
    EQUAL(nw_engine_create(&options, &engine), -EINVAL);
    options = (struct nw_engine_options){.size = sizeof options, .backend = 9};
    EQUAL(nw_engine_create(&options, &engine), -EINVAL);
    options = (struct nw_engine_options){.size = sizeof options, .depth = 1000000};
    EQUAL(nw_engine_create(&options, &engine), -EINVAL);
    options = (struct nw_engine_options){.size = 1};
    EQUAL(nw_engine_create(&options, &engine), -EINVAL);
    EQUAL(nw_engine_create(NULL, NULL), -EFAULT);
    EQUAL(nw_engine_destroy(NULL), -EFAULT);
    /* A program that knows the first fields alone. */
    struct {
        size_t size;
        uint32_t flags, backend;
    } older = {sizeof older, NW_ENGINE_LOCAL, NW_BACKEND_THREADS};
    EQUAL(nw_engine_create((struct nw_engine_options *)&older, &engine), 0);
    int forced = getenv("NOWAIT_BACKEND") != NULL;
    CHECK(forced || nw_engine_backend(engine) == NW_BACKEND_THREADS);
    EQUAL(nw_engine_destroy(engine), 0);
}

static struct nw_file *elsewhere;

static void *use_elsewhere(void *engine)
{
    struct nw_op op = {.opcode = NW_OP_NOP};
    struct nw_completion done;
    EQUAL(nw_submit(engine, &op, &done), -EPERM);
    /* Nothing of an operation is left: valgrind sees it. */
    struct statx stat;
    struct nw_op with_data = {.opcode = NW_OP_STATX, .file = elsewhere, .addr = &stat, .len = STATX_SIZE};
    EQUAL(nw_submit(engine, &with_data, &done), -EPERM);
    EQUAL(nw_submit_batch(engine, &with_data, 1), -EPERM);
    EQUAL(nw_submit_batch(engine, &op, 1), -EPERM);
    EQUAL(nw_reap(engine, &done, 1, 0, NULL), -EPERM);
    EQUAL(nw_engine_event_fd(engine), -EPERM);
    EQUAL(nw_engine_in_flight(engine), -EPERM);
    EQUAL(nw_cancel(engine, 1), -EPERM);
    EQUAL(nw_engine_destroy(engine), -EPERM);
    return NULL;
}

static void a_local_engine_refuses_other_threads(void)
{
    struct nw_engine *engine = make(NW_ENGINE_LOCAL, 0);
    int fd = make_file("file", 10);
    pthread_t thread;
    elsewhere = file_of(fd);
    EQUAL(pthread_create(&thread, NULL, use_elsewhere, engine), 0);
    EQUAL(pthread_join(thread, NULL), 0);
    struct nw_op op = {.opcode = NW_OP_NOP};
    EQUAL(run(engine, &op), 0);
    EQUAL(nw_file_close(elsewhere), 0);
    EQUAL(nw_engine_destroy(engine), 0);
    close(fd);
}

/* The number of eventfds of this process. */
static int eventfds(void)
{
    char path[64], name[64];
    int count = 0;
    for (int fd = 0; fd < 256; fd++) {
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        ssize_t len = readlink(path, name, sizeof name - 1);
        name[len < 0 ? 0 : len] = 0;
        count += strcmp(name, "anon_inode:[eventfd]") == 0;
    }
    return count;
}

/* What does not fit is kept, also if the program has never asked for the eventfd, and no descriptor is made for it. */
static void a_batch_without_an_eventfd(void)
{
    for (uint32_t flags = 0; flags <= NW_ENGINE_LOCAL; flags++) {
        struct nw_engine *engine = make(flags, 0);
        struct nw_op ops[10] = {{.opcode = NW_OP_NOP}};
        struct nw_completion done[3];
        EQUAL(nw_submit_batch(engine, ops, 10), 10);
        int before = eventfds(), taken = 0;
        while (taken < 10) {
            int n = nw_reap(engine, done, 3, 1, NULL);
            CHECK(n > 0);
            taken += n;
        }
        /* The engine's thread may have closed one with which it tried a call. */
        CHECK(eventfds() <= before);
        /* An eventfd that is asked for while some are left is readable. */
        EQUAL(nw_submit_batch(engine, ops, 10), 10);
        CHECK(nw_reap(engine, done, 3, 3, NULL) == 3);
        struct pollfd ready = {.fd = nw_engine_event_fd(engine), .events = POLLIN};
        EQUAL(poll(&ready, 1, 10000), 1);
        for (taken = 3; taken < 10;)
            taken += nw_reap(engine, done, 3, 1, NULL);
        EQUAL(nw_engine_destroy(engine), 0);
    }
}

enum { THREADS = 4, READS = 2000 };
static struct nw_file *shared_file;

/* Each thread reaps what any thread has submitted. */
static void *submit_and_reap(void *engine)
{
    /* A buffer for each read: they are in flight together. */
    char (*bufs)[512] = malloc(READS * 512);
    struct nw_completion done[16];
    CHECK(bufs != NULL);
    for (size_t i = 0; i < READS; i++) {
        size_t offset = i * 331 % 90000;
        struct nw_op op = {.opcode = NW_OP_READ, .file = shared_file, .addr = bufs[i], .len = 512, .offset = offset,
                           .user_data = offset};
        int said = nw_submit(engine, &op, &done[0]);
        CHECK(said == NW_DONE || said == NW_QUEUED || said == NW_FULL);
        if (said == NW_FULL) {
            i--;
        } else if (said == NW_DONE) {
            EQUAL(done[0].result, 512);
            check_bytes(bufs[i], offset, 512);
        }
        int n = nw_reap(engine, done, 16, 0, NULL);
        CHECK(n >= 0);
        for (int j = 0; j < n; j++)
            EQUAL(done[j].result, 512);
    }
    struct timespec moment = {1, 0};
    while (nw_engine_in_flight(engine) > 0)
        CHECK(nw_reap(engine, done, 16, 1, &moment) >= 0);
    for (size_t i = 0; i < READS; i++)
        check_bytes(bufs[i], i * 331 % 90000, 512);
    free(bufs);
    return NULL;
}

static void threads_share_an_engine(void)
{
    struct nw_engine *engine = make(0, 0);
    int fd = make_file("file", 100000);
    pthread_t threads[THREADS];
    shared_file = file_of(fd);
    evict(fd);
    for (int i = 0; i < THREADS; i++)
        EQUAL(pthread_create(&threads[i], NULL, submit_and_reap, engine), 0);
    for (int i = 0; i < THREADS; i++)
        EQUAL(pthread_join(threads[i], NULL), 0);
    struct nw_stats stats = {.size = sizeof stats};
    EQUAL(nw_engine_stats(engine, &stats), 0);
    CHECK(stats.hits + stats.handoffs > 0);
    EQUAL(nw_engine_stats(engine, NULL), -EFAULT);
    EQUAL(nw_file_close(shared_file), 0);
    EQUAL(nw_engine_destroy(engine), 0);
    close(fd);
}

static void engines_tell_about_themselves(void)
{
    struct nw_engine *engine = make(0, 0);
    char why[200];
    int backend = nw_engine_backend(engine);
    CHECK(backend == NW_BACKEND_URING || backend == NW_BACKEND_THREADS);
    CHECK(getenv("NOWAIT_CONTAINER") == NULL || backend == NW_BACKEND_THREADS);
    CHECK(nw_engine_why(engine) != NULL && *nw_engine_why(engine) != 0);
    int has = nw_engine_feature(engine, "polled", why, sizeof why);
    EQUAL(has, 1);
    EQUAL(nw_engine_feature(engine, "no such feature", why, sizeof why), -ENOENT);
    EQUAL(nw_engine_feature(engine, NULL, why, sizeof why), -EFAULT);
    EQUAL(nw_engine_feature(engine, "polled", NULL, 0), 1);
    EQUAL(nw_engine_feature(engine, "polled", why, 3), 1);
    CHECK(strlen(why) <= 2);
    EQUAL(nw_engine_destroy(engine), 0);
}

static void a_forked_child_is_refused(void)
{
    for (uint32_t flags = 0; flags <= NW_ENGINE_LOCAL; flags++) {
        struct nw_engine *engine = make(flags, 0);
        int fd = make_file("file", 1000);
        struct nw_file *file = file_of(fd);
        char buf[10];
        struct nw_op op = {.opcode = NW_OP_READ, .file = file, .addr = buf, .len = 10};
        EQUAL(run(engine, &op), 10);
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            struct nw_completion done;
            size_t n;
            alarm(HANGS);
            EQUAL(nw_submit(engine, &op, &done), NW_DONE);
            EQUAL(done.result, -ESTALE);
            EQUAL(nw_submit_batch(engine, &op, 1), 0);
            EQUAL(nw_read_file(engine, "/proc/version", buf, 10, 3, &done), NW_DONE);
            EQUAL(done.result, -ESTALE);
            EQUAL(done.user_data, 3);
            EQUAL(nw_reap(engine, &done, 1, 0, NULL), -ESTALE);
            /* What needs no engine works. */
            EQUAL(nw_file_pread_cached(file, buf, 10, 0, &n), NW_CACHED_ALL);
            struct nw_engine *own = make(flags, 0);
            EQUAL(run(own, &op), 10);
            EQUAL(nw_engine_destroy(own), 0);
            _exit(0);
        }
        int status;
        EQUAL(waitpid(child, &status, 0), child);
        /* The child does not have the parent's threads, whose memory valgrind reports as lost. */
        CHECK(status == 0 || (is_under_valgrind() && WEXITSTATUS(status) == 99));
        EQUAL(run(engine, &op), 10);
        EQUAL(nw_file_close(file), 0);
        EQUAL(nw_engine_destroy(engine), 0);
        close(fd);
    }
}

static void *release_elsewhere(void *resident)
{
    nw_resident_release(resident);
    return NULL;
}

static void loads_on_an_engine(uint32_t flags, struct nw_mapping *mapping)
{
    enum { LOADS = 3, LEN = 4000 };
    struct nw_engine *engine = make(flags, 0);
    struct nw_resident bytes[LOADS];
    struct nw_completion done[LOADS];
    struct nw_op ops[LOADS];
    memset(ops, 0, sizeof ops);
    for (int i = 0; i < LOADS; i++) {
        ops[i].opcode = NW_OP_MAPPING_LOAD;
        ops[i].mapping = mapping;
        ops[i].addr = &bytes[i];
        ops[i].offset = (uint64_t)i << 20;
        ops[i].len = LEN;
        ops[i].user_data = (uint64_t)i;
    }
    EQUAL(nw_submit_batch(engine, ops, LOADS), LOADS);
    EQUAL(nw_reap(engine, done, LOADS, LOADS, NULL), LOADS);
    int lends = nw_mapping_why(mapping) == NULL && !is_under_valgrind();
    for (int i = 0; i < LOADS; i++) {
        struct nw_resident *loaded = &bytes[done[i].user_data];
        CHECK(done[i].user_data < LOADS);
        if (done[i].result == 0) {
            EQUAL(loaded->len, LEN);
            check_bytes(loaded->data, done[i].user_data << 20, LEN);
        } else {
            CHECK(!lends);
            CHECK(loaded->data == NULL);
        }
        nw_resident_release(loaded);
    }
    struct nw_op op = ops[0];
    op.flags = 1;
    EQUAL(nw_submit(engine, &op, done), -EINVAL);
    op.flags = 0;
    op.offset = UINT64_MAX;
    EQUAL(nw_submit(engine, &op, done), -EINVAL);
    op.addr = NULL;
    EQUAL(nw_submit(engine, &op, done), -EFAULT);
    op.addr = bytes;
    op.mapping = NULL;
    EQUAL(nw_submit(engine, &op, done), -EFAULT);
    EQUAL(nw_engine_destroy(engine), 0);
}

/* A file that is open for writing lends nothing. */
static void a_load_of_a_file_that_may_change_fails(void)
{
    struct nw_engine *engine = make(0, 0);
    int fd = make_file("file", 5000);
    struct nw_file *file = file_of(fd);
    struct nw_mapping *mapping;
    struct nw_resident bytes;
    EQUAL(nw_mapping_open(file, &mapping), 0);
    struct nw_op op = {.opcode = NW_OP_MAPPING_LOAD, .addr = &bytes, .len = 10, .mapping = mapping};
    CHECK(run(engine, &op) < 0);
    CHECK(bytes.data == NULL);
    nw_resident_release(&bytes);
    EQUAL(nw_mapping_close(mapping), 0);
    op.mapping = mapping;
    EQUAL(run(engine, &op), -EBADF);
    EQUAL(nw_engine_destroy(engine), 0);
    EQUAL(nw_file_close(file), 0);
    close(fd);
}

/* What the child releases stays borrowed in the parent. */
static void a_forked_child_borrows_nothing(struct nw_mapping *mapping)
{
    struct nw_resident here[2], loaded[2], more;
    for (int i = 0; i < 2; i++) {
        EQUAL(nw_mapping_load(mapping, 500, 5000, &loaded[i]), 0);
        EQUAL(nw_mapping_get(mapping, 500, 5000, &here[i]), 0);
    }
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        char buf[100];
        alarm(HANGS);
        nw_resident_release(&here[0]);
        nw_resident_release(&loaded[0]);
        EQUAL(nw_mapping_get(mapping, 500, 10, &more), -EAGAIN);
        CHECK(more.data == NULL && more.len == 0);
        EQUAL(nw_mapping_load(mapping, 500, 10, &more), -ESTALE);
        CHECK(more.data == NULL && more.len == 0);
        nw_resident_release(&here[1]);
        nw_resident_release(&loaded[1]);
        EQUAL(nw_mapping_pread(mapping, buf, sizeof buf, 2000), sizeof buf);
        check_bytes(buf, 2000, sizeof buf);
        CHECK(nw_mapping_why(mapping) != NULL);
        EQUAL(nw_mapping_close(mapping), 0);
        _exit(0);
    }
    int status;
    EQUAL(waitpid(child, &status, 0), child);
    EQUAL(status, 0);
    for (int i = 0; i < 2; i++) {
        check_bytes(here[i].data, 500, here[i].len);
        check_bytes(loaded[i].data, 500, loaded[i].len);
        nw_resident_release(&here[i]);
        nw_resident_release(&loaded[i]);
    }
    CHECK(nw_mapping_why(mapping) == NULL);
}

static void a_mapping_lends_bytes(void)
{
    enum { SIZE = 3 << 20 };
    /* The descriptor for writing would prevent the lease. */
    close(make_file("file", SIZE));
    int fd = open("file", O_RDONLY);
    struct nw_file *file = file_of(fd);
    struct nw_mapping *mapping;
    struct nw_resident bytes, more;
    char buf[100];
    EQUAL(nw_mapping_open(file, &mapping), 0);
    EQUAL(nw_mapping_len(mapping), SIZE);
    EQUAL(nw_mapping_pread(mapping, buf, sizeof buf, 2000), sizeof buf);
    check_bytes(buf, 2000, sizeof buf);
    EQUAL(nw_mapping_pread(mapping, buf, sizeof buf, SIZE - 10), 10);
    /* valgrind does not know mlock2(2). */
    if (nw_mapping_why(mapping) == NULL && !is_under_valgrind()) {
        EQUAL(nw_mapping_load(mapping, 1000, 5000, &bytes), 0);
        EQUAL(bytes.len, 5000);
        check_bytes(bytes.data, 1000, bytes.len);
        EQUAL(nw_mapping_get(mapping, 7, 10, &more), 0);
        check_bytes(more.data, 7, 10);
        nw_resident_release(&more);
        nw_resident_release(&more);
        CHECK(more.data == NULL);
        /* Any thread may release what was loaded. */
        pthread_t thread;
        EQUAL(pthread_create(&thread, NULL, release_elsewhere, &bytes), 0);
        EQUAL(pthread_join(thread, NULL), 0);
        /* A release after a failure does nothing. */
        memset(&more, 9, sizeof more);
        EQUAL(nw_mapping_get(mapping, SIZE, 1, &more), -EAGAIN);
        CHECK(more.data == NULL);
        nw_resident_release(&more);
        EQUAL(nw_mapping_get(mapping, UINT64_MAX, 10, &more), -EINVAL);
        a_forked_child_borrows_nothing(mapping);
    }
    for (uint32_t flags = 0; flags <= NW_ENGINE_LOCAL; flags++)
        loads_on_an_engine(flags, mapping);
    EQUAL(nw_mapping_prefetch(mapping, 0, SIZE), 0);
    EQUAL(nw_file_close(file), -EBUSY);
    EQUAL(nw_mapping_close(mapping), 0);
    EQUAL(nw_mapping_get(mapping, 0, 1, &more), -EBADF);
    EQUAL(nw_mapping_get(NULL, 0, 1, &more), -EFAULT);
    CHECK(nw_mapping_why(mapping) != NULL);
    nw_resident_release(NULL);
    /* The workers that prefetch may have the file a moment longer. */
    int said;
    while ((said = nw_file_close(file)) == -EBUSY)
        usleep(1000);
    EQUAL(said, 0);
    close(fd);
}

#define CASE(name) {#name, name}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        CASE(each_operation_is_that_of_its_system_call),
        CASE(whole_files_are_read_until_the_memory_is_full),
        CASE(a_batch_is_reaped_in_any_pieces),
        CASE(a_full_engine_says_so),
        CASE(a_list_may_be_longer_than_one_call_takes),
        CASE(completions_count_until_they_are_reaped),
        CASE(a_poll_leaves_completions_to_a_waiting_thread),
        CASE(waits_end_at_their_time),
        CASE(bad_operations_are_refused),
        CASE(a_local_engine_refuses_other_threads),
        CASE(a_batch_without_an_eventfd),
        CASE(threads_share_an_engine),
        CASE(engines_tell_about_themselves),
        CASE(a_forked_child_is_refused),
        CASE(a_mapping_lends_bytes),
        CASE(a_load_of_a_file_that_may_change_fails),
    };
    return run_case(cases, sizeof cases / sizeof *cases, argc, argv);
}
