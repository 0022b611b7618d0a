/* leases FILE...: takes leases for writing of new and of other files, and holds them for a while. SIGIO, which ends the
 * program, says that another process has opened the file. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

static void later(void) { usleep(100000); }

int main(int argc, char **argv)
{
	static char bytes[65536];
	for (int n = 1; n < argc; n++) {
		int fd = open(argv[n], O_RDWR);
		while (fd >= 0 && read(fd, bytes, sizeof bytes) > 0)
			;
		if (n % 2)
			later();
		printf("%d ", fcntl(fd, F_SETLEASE, F_WRLCK));
		later();
		printf("%d\n", fcntl(fd, F_GETLEASE) == F_WRLCK);
		close(fd);
	}
	return 0;
}
