/* Prints the first bytes of a file, read with aio_read(3). */
#define _FILE_OFFSET_BITS 64
#include <aio.h>
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    char buffer[4096];
    if (argc != 2)
        errx(2, "usage: aio_read FILE");
    int fd = open(argv[1], O_RDONLY);
    if (fd < 0)
        err(1, "%s", argv[1]);
    struct aiocb block = {.aio_fildes = fd, .aio_buf = buffer, .aio_nbytes = sizeof(buffer)};
    const struct aiocb *blocks[] = {&block};
    if (aio_read(&block) != 0)
        err(1, "aio_read");
    while (aio_error(&block) == EINPROGRESS)
        aio_suspend(blocks, 1, NULL);
    ssize_t n = aio_return(&block);
    if (n < 0)
        err(1, "%s", argv[1]);
    return write(STDOUT_FILENO, buffer, n) != n;
}
