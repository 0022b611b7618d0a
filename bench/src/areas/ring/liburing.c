/* The loop of bare.rs with liburing: batches of random reads, as many in flight as the depth. */
#include <errno.h>
#include <liburing.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <time.h>

struct task {
    const int *files;
    unsigned n_files;
    uint64_t blocks;
    uint32_t block;
    unsigned depth, batch;
    int registered;
    double seconds;
    uint64_t seed;
    const bool *stop;
};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

/* Reads for task->seconds. Returns the number of reads, or a negative errno. */
int64_t liburing_loop(const struct task *task, char *memory, double *took)
{
    struct io_uring ring;
    struct io_uring_params params = {
        .flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN,
    };
    int error = io_uring_queue_init_params(task->depth, &ring, &params);
    if (error < 0)
        return error;
    unsigned *free_slots = malloc(task->depth * sizeof *free_slots);
    if (!free_slots) {
        io_uring_queue_exit(&ring);
        return -ENOMEM;
    }
    struct iovec piece = { memory, (size_t)task->depth * task->block };
    io_uring_register_ring_fd(&ring);
    if (task->registered) {
        error = io_uring_register_files(&ring, task->files, task->n_files);
        if (!error)
            error = io_uring_register_buffers(&ring, &piece, 1);
    }
    unsigned n_free = 0;
    for (unsigned slot = 0; slot < task->depth; slot++)
        free_slots[n_free++] = slot;
    uint64_t state = task->seed | 1;
    int64_t done = 0;
    double began = now();
    while (!error && now() - began < task->seconds && !__atomic_load_n(task->stop, __ATOMIC_RELAXED)) {
        while (n_free) {
            unsigned slot = free_slots[--n_free];
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            uint64_t at = (uint64_t)((unsigned __int128)state * (task->blocks * task->n_files) >> 64);
            unsigned file = at / task->blocks;
            uint64_t offset = at % task->blocks * task->block;
            char *to = memory + (size_t)slot * task->block;
            struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);
            if (task->registered) {
                io_uring_prep_read_fixed(sqe, file, to, task->block, offset, 0);
                sqe->flags |= IOSQE_FIXED_FILE;
            } else {
                io_uring_prep_read(sqe, task->files[file], to, task->block, offset);
            }
            io_uring_sqe_set_data64(sqe, slot);
        }
        error = io_uring_submit_and_wait(&ring, task->batch);
        error = error < 0 && error != -EINTR ? error : 0;
        struct io_uring_cqe *cqe;
        unsigned head, seen = 0;
        io_uring_for_each_cqe(&ring, head, cqe) {
            if (cqe->res != (int)task->block)
                error = cqe->res < 0 ? cqe->res : -EIO;
            free_slots[n_free++] = io_uring_cqe_get_data64(cqe);
            seen++;
        }
        io_uring_cq_advance(&ring, seen);
        done += seen;
    }
    *took = now() - began;
    /* The kernel writes to the memory until the last read has completed. */
    while (n_free < task->depth) {
        struct io_uring_cqe *cqe;
        if (io_uring_wait_cqe(&ring, &cqe) == 0) {
            n_free++;
            io_uring_cqe_seen(&ring, cqe);
        }
    }
    io_uring_queue_exit(&ring);
    free(free_slots);
    return error < 0 ? error : done;
}
