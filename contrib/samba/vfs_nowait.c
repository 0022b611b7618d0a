/*
 * Samba VFS module: reads through libnowait.
 *
 * Copyright (C) 2026 the authors of nowait
 *
 * This program is free software; you can redistribute it and/or modify it under the terms of the GNU General Public
 * License as published by the Free Software Foundation; either version 3 of the License, or (at your option) any later
 * version.
 *
 * This program is distributed in the hope that it will be useful, but WITHOUT ANY WARRANTY; without even the implied
 * warranty of MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE. See the GNU General Public License for more details.
 *
 * You should have received a copy of the GNU General Public License along with this program. If not, see
 * <http://www.gnu.org/licenses/>.
 */

/*
 * smbd has one process for each client, with one event loop. This module serves the asynchronous reads of SMB:
 *
 *   pread_send ─► nw_submit ─┬─ NW_DONE ───► tevent_req_done in the call: the page cache had the bytes
 *                            ├─ NW_QUEUED ─► eventfd in the event loop ─► nw_reap ─► tevent_req_done
 *                            └─ else ──────► the next module, which has a pool of threads
 *
 * A process has one engine, which is made at its first read, since smbd forks after it has loaded its modules. The
 * buffer of a read in flight belongs to the engine: a request that is freed waits for its read first.
 */

#include "includes.h"
#include "system/filesys.h"
#include "smbd/smbd.h"
#include "smbd/globals.h"
#include "lib/util/tevent_unix.h"
#include "smbprofile.h"
#include <nowait.h>

#undef DBGC_CLASS
#define DBGC_CLASS DBGC_VFS

#ifndef SMBPROFILE_BYTES_ASYNC_STATE_X
/* Samba before 4.22 has no counters for each share. */
#define SMBPROFILE_BYTES_ASYNC_STATE_X(all, share) SMBPROFILE_BYTES_ASYNC_STATE(all)
#define SMBPROFILE_BYTES_ASYNC_START_X(snum, name, all, share, n) SMBPROFILE_BYTES_ASYNC_START(name, profile_p, all, n)
#define SMBPROFILE_BYTES_ASYNC_SET_IDLE_X(all, share) SMBPROFILE_BYTES_ASYNC_SET_IDLE(all)
#define SMBPROFILE_BYTES_ASYNC_END_X(all, share) SMBPROFILE_BYTES_ASYNC_END(all)
#endif

/* The largest read that is copied from the page cache in the event loop. A larger copy would delay other requests. */
#define COPY_LIMIT (256 * 1024)

/* The engine of this process, and its eventfd in the event loop. */
static struct {
	struct nw_engine *engine;
	struct tevent_context *ev;
	struct tevent_fd *fde;
	/* No engine could be made. */
	bool failed;
} process;

struct pread_state {
	/* NULL while the request is being freed. */
	struct tevent_req *req;
	bool in_flight;
	uint64_t ticket;
	ssize_t result;
	struct timespec begun;
	struct vfs_aio_state aio;
	SMBPROFILE_BYTES_ASYNC_STATE_X(profile_bytes, profile_bytes_x);
};

/* A file whose descriptor is closed, while the engine still works on it. */
struct busy_file {
	struct busy_file *prev, *next;
	struct nw_file *file;
};

static struct busy_file *busy_files;

/* Ends a request. Its callback does not run in this call, see tevent_req_defer_callback(). */
static void pread_ended(struct pread_state *state, int64_t result)
{
	struct timespec now;

	PROFILE_TIMESTAMP(&now);
	state->aio.duration = nsec_time_diff(&now, &state->begun);
	SMBPROFILE_BYTES_ASYNC_END_X(state->profile_bytes, state->profile_bytes_x);
	state->in_flight = false;
	talloc_set_destructor(state, NULL);
	if (state->req == NULL) {
		return;
	}
	if (result < 0) {
		tevent_req_error(state->req, -result);
		return;
	}
	state->result = result;
	tevent_req_done(state->req);
}

/* Takes completions, and waits for `wait_for` of them. Returns their number, or -errno. */
static int reap(unsigned wait_for)
{
	struct nw_completion done[64];
	int i, n;

	do {
		n = nw_reap(process.engine, done, ARRAY_SIZE(done), wait_for, NULL);
		for (i = 0; i < n; i++) {
			struct pread_state *state = (struct pread_state *)(uintptr_t)done[i].user_data;
			pread_ended(state, done[i].result);
		}
		wait_for = 0;
	} while (n == ARRAY_SIZE(done));
	if (n < 0) {
		DBG_ERR("nw_reap: %s\n", nw_strerror(n));
	}
	return n;
}

static void event_fd_readable(struct tevent_context *ev, struct tevent_fd *fde, uint16_t flags, void *private_data)
{
	reap(0);
}

/* Waits until a read has ended. */
static bool wait_for_read(struct pread_state *state)
{
	while (state->in_flight) {
		if (reap(1) < 0) {
			return false;
		}
	}
	return true;
}

/*
 * The request is freed while its read is in flight: smbd exits. smbd frees the buffer next, so this waits for the read.
 */
static int pread_state_destructor(struct pread_state *state)
{
	state->req = NULL;
	DBG_NOTICE("the request ends: waiting for its read\n");
	nw_cancel(process.engine, state->ticket);
	return wait_for_read(state) ? 0 : -1;
}

static const struct enum_list engines[] = {
	{NW_BACKEND_ANY, "auto"},
	{NW_BACKEND_URING, "uring"},
	{NW_BACKEND_THREADS, "threads"},
	{-1, NULL},
};

/*
 * Makes the engine of this process, with the options of the share. A thread has the credentials of the thread that starts
 * it: the first threads are made as root, and start the others. No read starts a thread while smbd acts as a user.
 */
static void make_engine(struct vfs_handle_struct *handle)
{
	int snum = SNUM(handle->conn);
	bool strict = lp_parm_bool(snum, "nowait", "strict", false);
	struct nw_engine_options options = {
		.size = sizeof(options),
		.flags = NW_ENGINE_SPARE_WORKER | (strict ? NW_ENGINE_STRICT : 0),
		.backend = lp_parm_enum(snum, "nowait", "engine", engines, NW_BACKEND_ANY),
		.depth = lp_parm_int(snum, "nowait", "depth", 0),
		/* One file may use half of them. The next module has 100. */
		.workers = lp_parm_int(snum, "nowait", "workers", 128),
		.copy_limit = COPY_LIMIT,
	};
	struct nw_engine *engine = NULL;
	struct tevent_fd *fde = NULL;
	int said, fd;

	process.failed = true;
	become_root();
	said = nw_engine_create(&options, &engine);
	if (said < 0 && options.backend == NW_BACKEND_URING) {
		DBG_ERR("no io_uring: %s: threads are used\n", nw_strerror(said));
		options.backend = NW_BACKEND_THREADS;
		said = nw_engine_create(&options, &engine);
	}
	unbecome_root();
	if (said < 0) {
		DBG_ERR("nw_engine_create: %s: reads go to the next module\n", nw_strerror(said));
		return;
	}
	fd = nw_engine_event_fd(engine);
	if (fd >= 0) {
		struct tevent_context *ev = handle->conn->sconn->ev_ctx;
		fde = tevent_add_fd(ev, ev, fd, TEVENT_FD_READ, event_fd_readable, NULL);
		process.ev = ev;
	}
	if (fde == NULL) {
		DBG_ERR("no eventfd: reads go to the next module\n");
		nw_engine_destroy(engine);
		return;
	}
	DBG_NOTICE("%s: %s\n", nw_engine_backend(engine) == NW_BACKEND_URING ? "io_uring" : "threads",
		   nw_engine_why(engine));
	process.engine = engine;
	process.fde = fde;
	process.failed = false;
}

/* Closes the files on which the engine has ended its work since. */
static void close_busy_files(void)
{
	struct busy_file *busy, *next;

	for (busy = busy_files; busy != NULL; busy = next) {
		next = busy->next;
		if (nw_file_close(busy->file) != -EBUSY) {
			DLIST_REMOVE(busy_files, busy);
			TALLOC_FREE(busy);
		}
	}
}

/*
 * No read of the file is in flight, but a readahead of strict mode may be. If its descriptor belongs to another file by
 * then, that file is read ahead.
 */
static void forget_file(void *p_data)
{
	struct nw_file **file = p_data;
	struct busy_file *busy;

	if (busy_files != NULL) {
		close_busy_files();
	}
	if (*file == NULL || nw_file_close(*file) != -EBUSY) {
		return;
	}
	busy = talloc_zero(NULL, struct busy_file);
	if (busy != NULL) {
		busy->file = *file;
		DLIST_ADD(busy_files, busy);
	}
}

/* The library's file of an open file. NULL if there is none. */
static struct nw_file *file_of(struct vfs_handle_struct *handle, struct files_struct *fsp)
{
	struct nw_file **file = VFS_FETCH_FSP_EXTENSION(handle, fsp);
	int fd = fsp_get_io_fd(fsp);

	if (file != NULL && *file != NULL) {
		if (nw_file_fd(*file) == fd) {
			return *file;
		}
		VFS_REMOVE_FSP_EXTENSION(handle, fsp);
		file = NULL;
	}
	if (file == NULL) {
		file = VFS_ADD_FSP_EXTENSION(handle, fsp, struct nw_file *, forget_file);
	}
	if (file == NULL || nw_file_open(fd, file) < 0) {
		return NULL;
	}
	return *file;
}

/* Submits a read. Returns what nw_submit returns, or -errno. */
static int submit(struct vfs_handle_struct *handle, struct files_struct *fsp, struct pread_state *state, void *data,
		  size_t n, off_t offset, struct nw_completion *completion)
{
	struct nw_op op = {
		.opcode = NW_OP_READ,
		.addr = data,
		.len = n,
		.offset = offset,
		.user_data = (uintptr_t)state,
	};

	if (process.engine == NULL && !process.failed) {
		make_engine(handle);
	}
	op.file = process.engine != NULL ? file_of(handle, fsp) : NULL;
	if (op.file == NULL) {
		return -ENXIO;
	}
	PROFILE_TIMESTAMP(&state->begun);
	SMBPROFILE_BYTES_ASYNC_START_X(SNUM(handle->conn), syscall_asys_pread, state->profile_bytes,
				       state->profile_bytes_x, n);
	return nw_submit(process.engine, &op, completion);
}

static void next_done(struct tevent_req *subreq);

static struct tevent_req *nowait_pread_send(struct vfs_handle_struct *handle, TALLOC_CTX *mem_ctx,
					    struct tevent_context *ev, struct files_struct *fsp, void *data, size_t n,
					    off_t offset)
{
	struct tevent_req *req, *subreq;
	struct pread_state *state;
	struct nw_completion completion;
	int said;

	req = tevent_req_create(mem_ctx, &state, struct pread_state);
	if (req == NULL) {
		return NULL;
	}
	state->req = req;
	said = submit(handle, fsp, state, data, n, offset, &completion);
	switch (said) {
	case NW_DONE:
		pread_ended(state, completion.result);
		return tevent_req_post(req, ev);
	case NW_QUEUED:
		SMBPROFILE_BYTES_ASYNC_SET_IDLE_X(state->profile_bytes, state->profile_bytes_x);
		state->in_flight = true;
		state->ticket = completion.ticket;
		talloc_set_destructor(state, pread_state_destructor);
		tevent_req_defer_callback(req, ev);
		if (ev != process.ev) {
			/* The caller has an event loop of its own, which lacks the eventfd. */
			wait_for_read(state);
		}
		return req;
	case -ESTALE:
		/* A forked child of the process that made the engine: the next read makes another one. */
		ZERO_STRUCT(process);
		break;
	}
	/* The engine is full, or there is none. */
	subreq = SMB_VFS_NEXT_PREAD_SEND(state, ev, handle, fsp, data, n, offset);
	if (tevent_req_nomem(subreq, req)) {
		return tevent_req_post(req, ev);
	}
	tevent_req_set_callback(subreq, next_done, req);
	return req;
}

static void next_done(struct tevent_req *subreq)
{
	struct tevent_req *req = tevent_req_callback_data(subreq, struct tevent_req);
	struct pread_state *state = tevent_req_data(req, struct pread_state);

	state->result = SMB_VFS_PREAD_RECV(subreq, &state->aio);
	TALLOC_FREE(subreq);
	if (state->result == -1) {
		tevent_req_error(req, state->aio.error);
		return;
	}
	tevent_req_done(req);
}

static ssize_t nowait_pread_recv(struct tevent_req *req, struct vfs_aio_state *aio)
{
	struct pread_state *state = tevent_req_data(req, struct pread_state);
	ssize_t result;

	if (tevent_req_is_unix_error(req, &aio->error)) {
		tevent_req_received(req);
		return -1;
	}
	*aio = state->aio;
	result = state->result;
	tevent_req_received(req);
	return result;
}

static int nowait_close(struct vfs_handle_struct *handle, struct files_struct *fsp)
{
	VFS_REMOVE_FSP_EXTENSION(handle, fsp);
	return SMB_VFS_NEXT_CLOSE(handle, fsp);
}

static void nowait_disconnect(struct vfs_handle_struct *handle)
{
	struct nw_stats stats = {.size = sizeof(stats)};

	if (process.engine != NULL && nw_engine_stats(process.engine, &stats) == 0) {
		DBG_NOTICE("reads: %" PRIu64 " hits, %" PRIu64 " prefixes, %" PRIu64 " misses, %" PRIu64 " skipped, %" PRIu64
			   " handed to the engine, %" PRIu64 " found it full\n",
			   stats.hits, stats.prefixes, stats.misses, stats.skipped, stats.handoffs, stats.full);
	}
	SMB_VFS_NEXT_DISCONNECT(handle);
}

static const struct vfs_fn_pointers nowait_functions = {
	.disconnect_fn = nowait_disconnect,
	.close_fn = nowait_close,
	.pread_send_fn = nowait_pread_send,
	.pread_recv_fn = nowait_pread_recv,
};

NTSTATUS samba_init_module(TALLOC_CTX *ctx);
NTSTATUS samba_init_module(TALLOC_CTX *ctx)
{
	return smb_register_vfs(SMB_VFS_INTERFACE_VERSION, "nowait", &nowait_functions);
}
