/* copies FROM TO: makes calls that `nowait run --keep-cache` makes in parts, and prints their results. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define TRY(call)                                                          \
	do {                                                               \
		errno = 77;                                                \
		long result_ = (long)(call);                               \
		int errno_ = errno;                                        \
		printf("%s: %ld, errno %d\n", #call, result_, errno_);     \
	} while (0)

int main(int argc, char **argv)
{
	struct stat stat;
	int from = open(argv[1], O_RDWR), to = open(argv[2], O_RDWR | O_CREAT | O_TRUNC, 0600);
	if (argc != 3 || from < 0 || to < 0 || fstat(from, &stat) != 0)
		return 1;
	size_t len = stat.st_size;
	TRY(copy_file_range(from, NULL, to, NULL, len, 0));
	TRY(copy_file_range(from, NULL, to, NULL, len, 0));
	off_t start = 5, end = len;
	TRY(copy_file_range(from, &start, to, &end, len, 0));
	TRY(start);
	TRY(end);
	TRY(copy_file_range(from, &start, to, &end, len, 1));
	/* The ranges overlap. */
	off_t first = 0, second = len / 2;
	TRY(copy_file_range(to, &first, to, &second, len, 0));
	TRY(copy_file_range(from, &first, -1, NULL, len, 0));
	TRY(copy_file_range(-1, NULL, to, &second, len, 0));
	/* There is room for a part. */
	int full = open("full/file", O_WRONLY | O_CREAT, 0600);
	off_t again = 0;
	TRY(copy_file_range(from, &again, full, NULL, len, 0) > 0);
	TRY(copy_file_range(from, &again, full, NULL, len, 0));
	return 0;
}
