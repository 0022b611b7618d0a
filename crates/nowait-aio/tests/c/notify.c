/* Notification by signals and threads, for one request and for a list. */
#include "check.h"
#include <sched.h>

static char buf[8192];
static int regular, pipe_in, pipe_out;

static void set_up(void)
{
	int p[2];
	regular = filled("f", 65536);
	CHECK(pipe(p) == 0);
	pipe_in = p[0];
	pipe_out = p[1];
}

/* The three ways to complete a request: within the call, by the engine, on a stream. */
enum way { CACHED, WRITTEN, STREAMED, WAYS };

static struct aiocb of_way(enum way way)
{
	struct aiocb cb = request(way == STREAMED ? pipe_in : regular, buf, 16, 0);
	cb.aio_lio_opcode = way == WRITTEN ? LIO_WRITE : LIO_READ;
	return cb;
}

static void submit(struct aiocb *cb, enum way way)
{
	CHECK((way == WRITTEN ? aio_write(cb) : aio_read(cb)) == 0);
	if (way == STREAMED)
		CHECK(write(pipe_out, buf, 16) == 16);
}

static volatile sig_atomic_t notified, seen_in_progress, wrong;

static void on_signal(int signo, siginfo_t *info, void *context)
{
	(void)context;
	struct aiocb *cb = info->si_value.sival_ptr;
	if (signo != SIGRTMIN + 3 || info->si_code != SI_ASYNCIO || info->si_pid != getpid() ||
	    info->si_uid != getuid())
		wrong++;
	if (cb && aio_error(cb) == EINPROGRESS)
		seen_in_progress++;
	notified++;
}

static void catch_signal(int flags)
{
	struct sigaction action = { .sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | flags };
	CHECK(sigaction(SIGRTMIN + 3, &action, NULL) == 0);
}

static void by_signal(struct sigevent *event, void *value)
{
	memset(event, 0, sizeof *event);
	event->sigev_notify = SIGEV_SIGNAL;
	event->sigev_signo = SIGRTMIN + 3;
	event->sigev_value.sival_ptr = value;
}

static void the_right_signal_comes(void)
{
	set_up();
	catch_signal(0);
	for (int i = 0; i < 300; i++) {
		struct aiocb cb = of_way(i % WAYS);
		int before = notified;
		by_signal(&cb.aio_sigevent, &cb);
		submit(&cb, i % WAYS);
		while (notified == before)
			sched_yield();
		CHECK(aio_error(&cb) == 0 && aio_return(&cb) == 16);
		CHECK(notified == before + 1 && !wrong && !seen_in_progress);
	}
}

static void once_it_is_done_the_signal_is_pending(void)
{
	set_up();
	sigset_t set, pending;
	sigemptyset(&set);
	sigaddset(&set, SIGRTMIN + 3);
	CHECK(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
	for (int i = 0; i < 300; i++) {
		struct aiocb cb = of_way(i % WAYS);
		by_signal(&cb.aio_sigevent, &cb);
		submit(&cb, i % WAYS);
		while (aio_error(&cb) == EINPROGRESS)
			;
		CHECK(sigpending(&pending) == 0 && sigismember(&pending, SIGRTMIN + 3));
		siginfo_t info;
		struct timespec none = { 0, 0 };
		CHECK(sigtimedwait(&set, &info, &none) == SIGRTMIN + 3);
		CHECK(info.si_value.sival_ptr == &cb && info.si_code == SI_ASYNCIO);
		CHECK(sigtimedwait(&set, &info, &none) == -1 && errno == EAGAIN);
	}
}

static void no_signal_without_a_sigevent(void)
{
	set_up();
	catch_signal(0);
	for (int i = 0; i < WAYS; i++) {
		struct aiocb cb = of_way(i);
		cb.aio_sigevent.sigev_signo = SIGRTMIN + 3;
		cb.aio_sigevent.sigev_notify = SIGEV_NONE;
		submit(&cb, i);
		CHECK(wait_for(&cb) == 0);
	}
	nap(20);
	CHECK(notified == 0);
}

/* Observations of the notification threads. */
static struct {
	pthread_mutex_t lock;
	pthread_cond_t news;
	int calls, masked, detached, joinable, in_progress, other_table, with_stack;
	pthread_t last;
} found = { .lock = PTHREAD_MUTEX_INITIALIZER, .news = PTHREAD_COND_INITIALIZER };

static int marker = -1;
static size_t wanted_stack;

static void on_thread(union sigval value)
{
	struct aiocb *cb = value.sival_ptr;
	sigset_t mask;
	pthread_attr_t attr;
	int state;
	size_t stack;
	CHECK(pthread_sigmask(SIG_BLOCK, NULL, &mask) == 0);
	int masked = 0;
	for (int s = 1; s < 32; s++)
		masked += sigismember(&mask, s) == 1;
	CHECK(pthread_getattr_np(pthread_self(), &attr) == 0);
	CHECK(pthread_attr_getdetachstate(&attr, &state) == 0);
	CHECK(pthread_attr_getstacksize(&attr, &stack) == 0);
	int in_progress = cb && aio_error(cb) == EINPROGRESS;
	pthread_mutex_lock(&found.lock);
	found.calls++;
	found.masked += masked;
	found.detached += state == PTHREAD_CREATE_DETACHED;
	found.joinable += state == PTHREAD_CREATE_JOINABLE;
	found.in_progress += in_progress;
	/* The thread has the program's descriptor table. */
	found.other_table += marker >= 0 && fcntl(marker, F_GETFD) == -1;
	found.with_stack += wanted_stack && stack == wanted_stack;
	found.last = pthread_self();
	pthread_cond_broadcast(&found.news);
	pthread_mutex_unlock(&found.lock);
	pthread_attr_destroy(&attr);
}

static void by_thread(struct sigevent *event, void *value, pthread_attr_t *attr)
{
	memset(event, 0, sizeof *event);
	event->sigev_notify = SIGEV_THREAD;
	event->sigev_notify_function = on_thread;
	event->sigev_notify_attributes = attr;
	event->sigev_value.sival_ptr = value;
}

static void wait_calls(int n)
{
	pthread_mutex_lock(&found.lock);
	while (found.calls < n)
		pthread_cond_wait(&found.news, &found.lock);
	pthread_mutex_unlock(&found.lock);
}

static void a_thread_is_called(void)
{
	set_up();
	for (int i = 0; i < 60; i++) {
		struct aiocb *cb = malloc(sizeof *cb);
		*cb = of_way(i % WAYS);
		by_thread(&cb->aio_sigevent, cb, NULL);
		submit(cb, i % WAYS);
		wait_calls(i + 1);
		CHECK(wait_for(cb) == 0);
	}
	nap(20);
	CHECK(found.calls == 60 && found.detached == 60 && found.masked == 0);
	CHECK(found.in_progress == 0);
}

static void its_thread_has_the_programs_files(void)
{
	set_up();
	/* Opened after the library has started its threads. */
	struct aiocb first = of_way(WRITTEN);
	submit(&first, WRITTEN);
	CHECK(wait_for(&first) == 0);
	marker = open("f", O_RDONLY);
	for (int i = 0; i < 30; i++) {
		struct aiocb *cb = malloc(sizeof *cb);
		*cb = of_way(i % WAYS);
		by_thread(&cb->aio_sigevent, cb, NULL);
		submit(cb, i % WAYS);
	}
	wait_calls(30);
	CHECK(found.other_table == 0);
}

static void its_attributes_are_honoured(void)
{
	set_up();
	pthread_attr_t attr;
	CHECK(pthread_attr_init(&attr) == 0);
	wanted_stack = 1 << 20;
	CHECK(pthread_attr_setstacksize(&attr, wanted_stack) == 0);
	CHECK(pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_JOINABLE) == 0);
	for (int i = 0; i < 9; i++) {
		struct aiocb cb = of_way(i % WAYS);
		by_thread(&cb.aio_sigevent, &cb, &attr);
		submit(&cb, i % WAYS);
		wait_calls(i + 1);
		CHECK(wait_for(&cb) == 0);
		CHECK(pthread_join(found.last, NULL) == 0);
	}
	CHECK(found.joinable == 9 && found.with_stack == 9);
}

static void ends_its_thread(union sigval value)
{
	on_thread(value);
	pthread_exit(NULL);
}

static void its_thread_may_end_itself(void)
{
	set_up();
	for (int i = 0; i < 30; i++) {
		struct aiocb cb = of_way(i % WAYS);
		by_thread(&cb.aio_sigevent, &cb, NULL);
		cb.aio_sigevent.sigev_notify_function = ends_its_thread;
		submit(&cb, i % WAYS);
		wait_calls(i + 1);
		CHECK(wait_for(&cb) == 0);
	}
}

static struct aiocb many[30];
static struct aiocb *list_of_many[32];
static volatile sig_atomic_t list_notified, list_saw_in_progress;

static void on_list_signal(int signo, siginfo_t *info, void *context)
{
	(void)signo, (void)context;
	for (int i = 0; i < 30; i++)
		if (aio_error(&many[i]) == EINPROGRESS)
			list_saw_in_progress++;
	if (info->si_code != SI_ASYNCIO || info->si_value.sival_int != 4711)
		wrong++;
	list_notified++;
}

static void a_list_notifies_once_when_all_are_done(void)
{
	set_up();
	catch_signal(0);
	struct sigaction action = { .sa_sigaction = on_list_signal, .sa_flags = SA_SIGINFO };
	CHECK(sigaction(SIGRTMIN + 4, &action, NULL) == 0);
	for (int round = 0; round < 50; round++) {
		int all = notified;
		struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN + 4,
					  .sigev_value.sival_int = 4711 };
		for (int i = 0; i < 30; i++) {
			many[i] = of_way((i + round) % WAYS);
			by_signal(&many[i].aio_sigevent, &many[i]);
			list_of_many[i] = &many[i];
		}
		CHECK(lio_listio(LIO_NOWAIT, list_of_many, 32, &event) == 0);
		nap(round % 2);
		CHECK(list_notified == round);
		for (int i = 0; i < 10; i++)
			CHECK(write(pipe_out, buf, 16) == 16);
		while (list_notified == round)
			sched_yield();
		while (notified < all + 30)
			sched_yield();
		nap(1);
		CHECK(list_notified == round + 1 && notified == all + 30);
		CHECK(!list_saw_in_progress && !seen_in_progress && !wrong);
	}
}

static void a_list_notifies_by_a_thread(void)
{
	set_up();
	for (int round = 0; round < 20; round++) {
		struct sigevent event;
		by_thread(&event, NULL, NULL);
		for (int i = 0; i < 6; i++) {
			many[i] = of_way((i + round) % WAYS);
			list_of_many[i] = &many[i];
		}
		CHECK(lio_listio(LIO_NOWAIT, list_of_many, 6, &event) == 0);
		CHECK(write(pipe_out, buf, 32) == 32);
		wait_calls(round + 1);
		for (int i = 0; i < 6; i++)
			CHECK(wait_for(&many[i]) == 0);
	}
}

static void an_empty_list_notifies(void)
{
	catch_signal(0);
	struct sigevent event;
	by_signal(&event, NULL);
	CHECK(lio_listio(LIO_NOWAIT, list_of_many, 0, &event) == 0);
	while (notified < 1)
		sched_yield();
	CHECK(lio_listio(LIO_NOWAIT, list_of_many, 32, &event) == 0);
	while (notified < 2)
		sched_yield();
	struct aiocb nop = request(0, NULL, 0, 0);
	nop.aio_lio_opcode = LIO_NOP;
	list_of_many[3] = &nop;
	CHECK(lio_listio(LIO_NOWAIT, list_of_many, 32, &event) == 0);
	while (notified < 3)
		sched_yield();
	nap(10);
	CHECK(notified == 3 && !wrong);
}

static void a_bad_entry_stops_no_other_request_of_a_list(void)
{
	set_up();
	catch_signal(0);
	struct sigevent event;
	by_signal(&event, NULL);
	for (int i = 0; i < 9; i++) {
		many[i] = of_way(i % WAYS);
		if (i == 4)
			many[i].aio_fildes = -1;
		by_signal(&many[i].aio_sigevent, &many[i]);
		list_of_many[i] = &many[i];
	}
	CHECK(write(pipe_out, buf, 64) == 64);
	/* A bad descriptor is an error of that request. Its notification is sent like the others. */
	CHECK(lio_listio(LIO_NOWAIT, list_of_many, 9, &event) == 0);
	while (notified < 10)
		sched_yield();
	for (int i = 0; i < 9; i++)
		CHECK(aio_error(&many[i]) == (i == 4 ? EBADF : 0));
	/* A bad operation is an error of the call. */
	notified = 0;
	many[4] = of_way(CACHED);
	many[4].aio_lio_opcode = 99;
	for (int i = 0; i < 9; i++)
		many[i].aio_sigevent.sigev_notify = SIGEV_NONE;
	CHECK(write(pipe_out, buf, 48) == 48);
	CHECK(lio_listio(LIO_NOWAIT, list_of_many, 9, &event) == -1 && errno == EIO);
	while (notified < 1)
		sched_yield();
	for (int i = 0; i < 9; i++)
		CHECK(aio_error(&many[i]) == (i == 4 ? EINVAL : 0));
}

static void a_list_with_a_failed_request_is_eio(void)
{
	set_up();
	for (int i = 0; i < 9; i++) {
		many[i] = of_way(i % 2);
		list_of_many[i] = &many[i];
	}
	CHECK(lio_listio(LIO_WAIT, list_of_many, 32, NULL) == 0);
	for (int i = 0; i < 9; i++)
		CHECK(aio_error(&many[i]) == 0 && aio_return(&many[i]) == 16);
	many[4].aio_fildes = -1;
	CHECK(lio_listio(LIO_WAIT, list_of_many, 32, NULL) == -1 && errno == EIO);
	for (int i = 0; i < 9; i++)
		CHECK(aio_error(&many[i]) == (i == 4 ? EBADF : 0));
	CHECK(lio_listio(LIO_WAIT, list_of_many, 0, NULL) == 0);
}

static void a_signal_ends_the_wait_for_a_list_and_nothing_else(void)
{
	set_up();
	for (int flags = 0; flags < 2; flags++) {
		catch_signal(flags ? SA_RESTART : 0);
		for (int i = 0; i < 3; i++) {
			many[i] = of_way(STREAMED);
			list_of_many[i] = &many[i];
		}
		struct kicked me = { pthread_self(), SIGRTMIN + 3, 0 };
		pthread_t t;
		CHECK(pthread_create(&t, NULL, kicks, &me) == 0);
		CHECK(lio_listio(LIO_WAIT, list_of_many, 3, NULL) == -1 && errno == EINTR);
		me.over = 1;
		CHECK(pthread_join(t, NULL) == 0);
		for (int i = 0; i < 3; i++)
			CHECK(aio_error(&many[i]) == EINPROGRESS);
		CHECK(write(pipe_out, buf, 48) == 48);
		for (int i = 0; i < 3; i++)
			CHECK(wait_for(&many[i]) == 0);
	}
}

static void the_signals_of_its_requests_restart_the_wait_for_a_list(void)
{
	set_up();
	catch_signal(SA_RESTART);
	for (int i = 0; i < 9; i++) {
		many[i] = of_way(i % WAYS);
		by_signal(&many[i].aio_sigevent, &many[i]);
		list_of_many[i] = &many[i];
	}
	pid_t child = fork();
	if (child == 0) {
		for (int i = 0; i < 3; i++) {
			nap(20);
			CHECK(write(pipe_out, buf, 16) == 16);
		}
		_exit(0);
	}
	CHECK(lio_listio(LIO_WAIT, list_of_many, 9, NULL) == 0);
	for (int i = 0; i < 9; i++)
		CHECK(aio_error(&many[i]) == 0 && aio_return(&many[i]) == 16);
	while (notified < 9)
		sched_yield();
	int status;
	CHECK(!seen_in_progress && waitpid(child, &status, 0) == child && status == 0);
}

static void a_full_signal_queue_loses_nothing(void)
{
	set_up();
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGRTMIN + 3);
	CHECK(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
	/* The limit counts the signals that are queued for this user. */
	struct rlimit limit = { 10, 10 };
	CHECK(setrlimit(RLIMIT_SIGPENDING, &limit) == 0);
	for (int i = 0; i < 30; i++) {
		many[i] = of_way(i % WAYS);
		by_signal(&many[i].aio_sigevent, &many[i]);
		submit(&many[i], i % WAYS);
	}
	int got = 0;
	while (got < 30) {
		siginfo_t info;
		struct timespec some = { 60, 0 };
		CHECK(sigtimedwait(&set, &info, &some) == SIGRTMIN + 3);
		got++;
	}
	for (int i = 0; i < 30; i++)
		CHECK(wait_for(&many[i]) == 0);
}

/* Four notifications wait for the signal queue. Other notifications are sent, and aio_error returns. */
static void a_full_signal_queue_delays_no_other_request(void)
{
	set_up();
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGRTMIN + 3);
	CHECK(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
	struct rlimit limit = { 0, 0 };
	CHECK(setrlimit(RLIMIT_SIGPENDING, &limit) == 0);
	struct aiocb thread = of_way(WRITTEN), plain = of_way(STREAMED);
	for (int i = 0; i < 4; i++) {
		many[i] = of_way(WRITTEN);
		by_signal(&many[i].aio_sigevent, &many[i]);
		submit(&many[i], WRITTEN);
	}
	nap(50);
	double begin = now();
	for (int i = 0; i < 4; i++)
		CHECK(aio_error(&many[i]) == EINPROGRESS || now() - begin < 5);
	CHECK(now() - begin < 5);
	by_thread(&thread.aio_sigevent, &thread, NULL);
	submit(&thread, WRITTEN);
	submit(&plain, STREAMED);
	CHECK(wait_for(&plain) == 0);
	pthread_mutex_lock(&found.lock);
	while (found.calls == 0)
		pthread_cond_wait(&found.news, &found.lock);
	pthread_mutex_unlock(&found.lock);
	CHECK(wait_for(&thread) == 0);
	/* Before the notifications are dropped, after ten seconds. */
	CHECK(now() - begin < 5);
}

/* On one processor, the notified thread runs before the thread that has notified it. */
static void share_a_processor(void)
{
	cpu_set_t here;
	CPU_ZERO(&here);
	CPU_SET(sched_getcpu(), &here);
	CHECK(sched_setaffinity(0, sizeof here, &here) == 0);
}

static sigset_t take_signals(void)
{
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGRTMIN + 3);
	CHECK(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
	return set;
}

static void wait_for_signal(const sigset_t *set)
{
	CHECK(sigwaitinfo(set, NULL) == SIGRTMIN + 3);
}

/* The request is done when its notification arrives. No call of aio_error is needed. */
static void a_block_can_be_resubmitted_after_its_notification(void)
{
	share_a_processor();
	set_up();
	sigset_t set = take_signals();
	struct aiocb cb = of_way(WRITTEN), *list[1] = { &cb };
	struct sigevent event;
	by_signal(&event, NULL);
	double end = now() + 2;
	for (int i = 0; i < 3000 && now() < end; i++) {
		cb.aio_fildes = i % 2 ? pipe_out : regular;
		if (i % 3) {
			by_signal(&cb.aio_sigevent, NULL);
			CHECK(aio_write(&cb) == 0);
		} else {
			cb.aio_sigevent.sigev_notify = SIGEV_NONE;
			CHECK(lio_listio(LIO_NOWAIT, list, 1, &event) == 0);
		}
		wait_for_signal(&set);
		if (i % 2)
			CHECK(read(pipe_in, buf, 16) == 16);
	}
}

enum how { OWN_SIGNAL, LISTS_SIGNAL, OWN_THREAD, HOWS };

/* "...before all asynchronous I/O completed and ... the notification is sent" (lio_listio). After that
   the program may unmap the block. */
static void a_block_is_not_accessed_after_its_notification(void)
{
	share_a_processor();
	set_up();
	sigset_t set = take_signals();
	struct sigevent event;
	by_signal(&event, NULL);
	/* The notification threads come last: they would take the signals. */
	for (enum how how = 0; how < HOWS; how++) {
		double end = now() + 1;
		for (int i = 0; i < 1500 && now() < end; i++) {
			enum way way = i % WAYS;
			struct aiocb *cb = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
						MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
			CHECK(cb != MAP_FAILED);
			*cb = of_way(way);
			if (how == OWN_SIGNAL)
				by_signal(&cb->aio_sigevent, NULL);
			if (how == OWN_THREAD)
				by_thread(&cb->aio_sigevent, NULL, NULL);
			if (how != LISTS_SIGNAL)
				submit(cb, way);
			else
				CHECK(lio_listio(LIO_NOWAIT, &cb, 1, &event) == 0);
			if (how == LISTS_SIGNAL && way == STREAMED)
				CHECK(write(pipe_out, buf, 16) == 16);
			if (how == OWN_THREAD)
				wait_calls(i + 1);
			else
				wait_for_signal(&set);
			CHECK(mprotect(cb, 4096, PROT_NONE) == 0);
		}
	}
}

TESTS(CASE(the_right_signal_comes), CASE(once_it_is_done_the_signal_is_pending),
      CASE(no_signal_without_a_sigevent), CASE(a_thread_is_called),
      CASE(its_thread_has_the_programs_files), CASE(its_attributes_are_honoured),
      CASE(its_thread_may_end_itself), CASE(a_list_notifies_once_when_all_are_done),
      CASE(a_list_notifies_by_a_thread), CASE(an_empty_list_notifies),
      CASE(a_bad_entry_stops_no_other_request_of_a_list),
      CASE(a_list_with_a_failed_request_is_eio),
      CASE(a_signal_ends_the_wait_for_a_list_and_nothing_else),
      CASE(the_signals_of_its_requests_restart_the_wait_for_a_list),
      CASE(a_full_signal_queue_loses_nothing), CASE(a_full_signal_queue_delays_no_other_request),
      CASE(a_block_can_be_resubmitted_after_its_notification),
      CASE(a_block_is_not_accessed_after_its_notification))
