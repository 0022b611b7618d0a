/* left READ DROPPED: waits until the file `go` is there, reads the file READ, reads the file DROPPED and evicts it by advice,
 * and makes the file `done`. */
#include <fcntl.h>
#include <unistd.h>

static int read_all(const char *path)
{
	static char bytes[65536];
	int fd = open(path, O_RDONLY);
	while (fd >= 0 && read(fd, bytes, sizeof bytes) > 0)
		;
	return fd;
}

int main(int argc, char **argv)
{
	if (argc != 3)
		return 1;
	close(open("started", O_WRONLY | O_CREAT, 0600));
	while (access("go", F_OK) != 0)
		usleep(1000);
	close(read_all(argv[1]));
	int fd = read_all(argv[2]);
	int failed = posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	close(fd);
	close(open("done", O_WRONLY | O_CREAT, 0600));
	return failed;
}
