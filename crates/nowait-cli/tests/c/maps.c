/* Maps the file of its first argument, closes it, and reads the mapping after a while. With another
 * argument it then waits for the end of standard input. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	struct stat stat;
	int fd = open(argv[1], O_RDONLY);
	if (fd < 0 || fstat(fd, &stat) != 0)
		return 1;
	const volatile char *bytes = mmap(NULL, stat.st_size, PROT_READ, MAP_SHARED, fd, 0);
	if (bytes == MAP_FAILED)
		return 1;
	close(fd);
	if (argc == 2)
		usleep(100000);
	long sum = 0;
	for (long at = 0; at < stat.st_size; at += 4096)
		sum += bytes[at];
	printf("%ld\n", sum);
	fflush(stdout);
	if (argc > 2) {
		char c;
		while (read(0, &c, 1) > 0)
			;
	}
	return 0;
}
