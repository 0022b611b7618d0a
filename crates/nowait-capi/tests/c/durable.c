/* Writes files that are durable when the program ends, by each call that promises it. The test then cuts the power. */
#include "test.h"

#include <sys/uio.h>

enum { LEN = 300000 };
static char bytes[LEN];

/* A file that has its name, and is empty. */
static int named(const char *name)
{
    int fd = open(name, O_RDWR | O_CREAT | O_EXCL, 0600), directory = open(".", O_RDONLY | O_DIRECTORY);
    CHECK(fd >= 0 && directory >= 0);
    EQUAL(fsync(fd), 0);
    EQUAL(fsync(directory), 0);
    EQUAL(close(directory), 0);
    return fd;
}

/* Runs one operation. */
static void run(struct nw_engine *engine, const struct nw_op *op, int64_t result)
{
    struct nw_completion done;
    int said = nw_submit(engine, op, &done);
    if (said == NW_QUEUED)
        EQUAL(nw_reap(engine, &done, 1, 1, NULL), 1);
    else
        EQUAL(said, NW_DONE);
    EQUAL(done.result, result);
}

static void write_and_sync(struct nw_engine *engine, const char *name, uint32_t opcode)
{
    int fd = named(name);
    struct nw_file *file;
    EQUAL(nw_file_open(fd, &file), 0);
    run(engine, &(struct nw_op){.opcode = NW_OP_WRITE, .file = file, .addr = bytes, .len = LEN}, LEN);
    run(engine, &(struct nw_op){.opcode = opcode, .file = file}, 0);
    EQUAL(nw_file_close(file), 0);
    EQUAL(close(fd), 0);
}

static void write_flagged(struct nw_engine *engine, const char *name, uint32_t opcode, uint32_t flags)
{
    int fd = named(name);
    struct nw_file *file;
    EQUAL(nw_file_open(fd, &file), 0);
    struct iovec halves[2] = {{bytes, LEN / 2}, {bytes + LEN / 2, LEN / 2}};
    struct nw_op op = {.opcode = opcode, .flags = flags, .file = file, .addr = bytes, .len = LEN};
    if (opcode == NW_OP_WRITEV) {
        op.addr = halves;
        op.len = 2;
    }
    run(engine, &op, LEN);
    EQUAL(nw_file_close(file), 0);
    EQUAL(close(fd), 0);
}

int main(void)
{
    for (int i = 0; i < LEN; i++)
        bytes[i] = (char)(1 + i % 251);
    for (uint32_t flags = 0; flags <= NW_ENGINE_LOCAL; flags++) {
        struct nw_engine_options options = {.size = sizeof options, .flags = flags};
        struct nw_engine *engine;
        char name[40];
        EQUAL(nw_engine_create(&options, &engine), 0);
        sprintf(name, "fsync%u", flags);
        write_and_sync(engine, name, NW_OP_FSYNC);
        sprintf(name, "fdatasync%u", flags);
        write_and_sync(engine, name, NW_OP_FDATASYNC);
        sprintf(name, "dsync%u", flags);
        write_flagged(engine, name, NW_OP_WRITE, RWF_DSYNC);
        sprintf(name, "sync%u", flags);
        write_flagged(engine, name, NW_OP_WRITE, RWF_SYNC);
        sprintf(name, "vector%u", flags);
        write_flagged(engine, name, NW_OP_WRITEV, RWF_DSYNC);
        EQUAL(nw_engine_destroy(engine), 0);
    }
    int fd = named("pwritev2");
    struct iovec iov = {bytes, LEN};
    EQUAL(nw_pwritev2(fd, &iov, 1, 0, RWF_DSYNC), LEN);
    EQUAL(close(fd), 0);
    return 0;
}
