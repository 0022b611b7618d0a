/* The ways in which a program ends. Each case uses AIO once, cached or written. */
#include "check.h"

static char buf[4096];

static void use(void)
{
	int fd = filled("f", 4096);
	struct aiocb r = request(fd, buf, 512, 0), w = request(fd, buf, 512, 0);
	CHECK(aio_read(&r) == 0 && wait_for(&r) == 0);
	CHECK(aio_write(&w) == 0 && wait_for(&w) == 0);
}

static void by_return(void) { use(); }

static void by_exit(void)
{
	use();
	exit(0);
}

static void by__exit(void)
{
	use();
	_exit(0);
}

static void by__Exit(void)
{
	use();
	_Exit(0);
}

static void exits(void) { _exit(0); }

static void by__exit_in_an_atexit_function(void)
{
	use();
	CHECK(atexit(exits) == 0);
	exit(1);
}

/* The child has its parent's memory, and ends before the parent goes on. */
static void after_a_child_of_vfork(void)
{
	use();
	pid_t child = vfork();
	if (child == 0)
		_exit(0);
	int status;
	CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
}

/* The child has not used AIO. */
static void after_a_child_of_fork(void)
{
	use();
	pid_t child = fork();
	if (child == 0)
		_exit(0);
	int status;
	CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
}

static void with_its_status(void)
{
	pid_t child = fork();
	if (child == 0) {
		use();
		_exit(77);
	}
	int status;
	CHECK(child > 0 && waitpid(child, &status, 0) == child);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 77);
}

TESTS(CASE(by_return), CASE(by_exit), CASE(by__exit), CASE(by__Exit),
      CASE(by__exit_in_an_atexit_function), CASE(after_a_child_of_vfork),
      CASE(after_a_child_of_fork), CASE(with_its_status))
