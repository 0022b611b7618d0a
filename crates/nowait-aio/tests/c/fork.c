/* Forked children: AIO works there, and the parent's requests do not exist there. */
#include "check.h"

static char buf[4096];
static int fd, in, out;

static void use(void)
{
	struct aiocb w = request(fd, buf, 512, 0), r = request(fd, buf, 4096, 8192);
	CHECK(aio_write(&w) == 0 && wait_for(&w) == 0 && aio_return(&w) == 512);
	evict(fd);
	CHECK(aio_read(&r) == 0 && wait_for(&r) == 0 && aio_return(&r) == 4096);
	struct aiocb s = request(fd, NULL, 0, 0);
	CHECK(aio_fsync(O_DSYNC, &s) == 0 && wait_for(&s) == 0);
}

static void set_up(void)
{
	int p[2];
	fd = filled("f", 65536);
	CHECK(pipe(p) == 0);
	in = p[0];
	out = p[1];
}

static void in_child(void (*body)(void))
{
	pid_t child = fork();
	if (child == 0) {
		alarm(HANGS);
		body();
		_exit(0);
	}
	int status;
	CHECK(child > 0 && waitpid(child, &status, 0) == child);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void a_child_of_a_parent_that_used_it(void)
{
	set_up();
	for (int i = 0; i < 5; i++) {
		use();
		in_child(use);
	}
	use();
}

static void forks_and_uses(void)
{
	use();
	in_child(use);
	use();
}

static void grandchildren(void)
{
	set_up();
	use();
	in_child(forks_and_uses);
}

static void by_clone_alone(void)
{
	set_up();
	use();
	pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
	if (child == 0) {
		use();
		_exit(0);
	}
	int status;
	CHECK(child > 0 && waitpid(child, &status, 0) == child);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static struct aiocb of_parent;

static void looks_at_the_parents(void)
{
	const struct aiocb *list[] = { &of_parent };
	CHECK(aio_error(&of_parent) == -1 && errno == EINVAL);
	CHECK(aio_return(&of_parent) == -1 && errno == EINVAL);
	CHECK(aio_suspend(list, 1, NULL) == 0);
	CHECK(aio_cancel(in, NULL) == AIO_ALLDONE);
	/* The child can submit the block. */
	of_parent = request(fd, buf, 512, 0);
	CHECK(aio_write(&of_parent) == 0 && wait_for(&of_parent) == 0);
}

static void the_parents_requests_do_not_exist(void)
{
	set_up();
	of_parent = request(in, buf, 4, 0);
	CHECK(aio_read(&of_parent) == 0);
	in_child(looks_at_the_parents);
	CHECK(aio_error(&of_parent) == EINPROGRESS);
	CHECK(write(out, "abcd", 4) == 4);
	CHECK(wait_for(&of_parent) == 0 && aio_return(&of_parent) == 4);
}

static volatile int stop;

static void *keeps_using(void *unused)
{
	(void)unused;
	static __thread char own[4096];
	while (!stop) {
		struct aiocb r = request(fd, own, sizeof own, 4096), w = request(fd, own, 512, 0);
		posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
		CHECK(aio_read(&r) == 0 && aio_write(&w) == 0);
		CHECK(wait_for(&r) == 0 && wait_for(&w) == 0);
	}
	return NULL;
}

static void forks_while_threads_submit(void)
{
	set_up();
	pthread_t t[4];
	for (int i = 0; i < 4; i++)
		CHECK(pthread_create(&t[i], NULL, keeps_using, NULL) == 0);
	double end = now() + 2;
	while (now() < end)
		in_child(use);
	stop = 1;
	for (int i = 0; i < 4; i++)
		CHECK(pthread_join(t[i], NULL) == 0);
}

static int before_descriptors(void)
{
	int n = 0;
	for (int i = 0; i < 1024; i++)
		n += fcntl(i, F_GETFD) != -1;
	return n;
}

static int of_parents;

static void counts_descriptors(void)
{
	use();
	CHECK(before_descriptors() == of_parents);
}

static void a_child_has_no_more_descriptors(void)
{
	set_up();
	use();
	of_parents = before_descriptors();
	in_child(counts_descriptors);
}

static volatile int children_stop;

static void *returns(void *argument) { return argument; }

static void *starts_threads(void *unused)
{
	(void)unused;
	pthread_t t;
	while (!children_stop) {
		struct aiocb r = request(fd, buf, 4096, 0);
		CHECK(pthread_create(&t, NULL, returns, NULL) == 0);
		CHECK(aio_write(&r) == 0 && wait_for(&r) == 0);
		CHECK(pthread_join(t, NULL) == 0);
	}
	return NULL;
}

/* The library's threads start while the process forks. */
static void starts_and_forks(void)
{
	static void (*const bodies[])(void) = { use, use, starts_and_forks };
	static int depth;
	pthread_t t[3];
	depth++;
	children_stop = 0;
	for (int i = 0; i < 3; i++)
		CHECK(pthread_create(&t[i], NULL, starts_threads, NULL) == 0);
	for (int i = 0; i < 5; i++)
		in_child(bodies[depth < 3 ? i % 3 : 0]);
	children_stop = 1;
	for (int i = 0; i < 3; i++)
		CHECK(pthread_join(t[i], NULL) == 0);
}

static void forks_while_threads_start(void)
{
	set_up();
	double end = now() + 4;
	while (now() < end)
		in_child(starts_and_forks);
}

TESTS(CASE(forks_while_threads_start), CASE(a_child_of_a_parent_that_used_it),
      CASE(grandchildren), CASE(by_clone_alone), CASE(the_parents_requests_do_not_exist),
      CASE(forks_while_threads_submit), CASE(a_child_has_no_more_descriptors))
