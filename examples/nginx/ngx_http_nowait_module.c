/* Serves files through libnowait: nowait on;
 *
 * nginx reads a file in its event loop, where a read of uncached data holds up every other connection, or hands each
 * block to a pool of threads (aio threads), also if it is cached. This body filter does neither.
 *
 *   static, range filter ─► file buffers ─► nw_submit ─┬─ NW_DONE ───► memory buffers ─► gzip, TLS, write
 *                                                      └─ NW_QUEUED ─► eventfd ─► nw_reap ─► the request goes on
 *
 * A worker process has one local engine, whose eventfd is in the event loop. A request waits for at most one read. While
 * it waits it is blocked, as with aio: nginx does not free it, also if the client has gone. */
#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include <nowait.h>

/* The bit of r->buffered that the image filter has too. It does not pass file buffers on. */
#define NGX_HTTP_NOWAIT_BUFFERED 0x08

typedef struct {
    ngx_flag_t enable;
    ngx_bufs_t bufs;
} ngx_http_nowait_loc_conf_t;

typedef struct {
    ngx_chain_t *in;   /* what is not yet read */
    ngx_chain_t *free; /* our buffers */
    ngx_chain_t *busy;
    ngx_int_t allocated;
    struct nw_file *file; /* the file of the first buffer in `in` */
    ngx_fd_t fd;
    ngx_buf_t *reading; /* the buffer of a read that is in flight or has just ended */
    int64_t result;
    unsigned in_flight : 1;
    ngx_http_request_t *request;
} ngx_http_nowait_ctx_t;

static void *ngx_http_nowait_create_conf(ngx_conf_t *cf);
static char *ngx_http_nowait_merge_conf(ngx_conf_t *cf, void *parent, void *child);
static ngx_int_t ngx_http_nowait_init(ngx_conf_t *cf);
static ngx_int_t ngx_http_nowait_init_process(ngx_cycle_t *cycle);

static ngx_command_t ngx_http_nowait_commands[] = {
    {ngx_string("nowait"), NGX_HTTP_MAIN_CONF | NGX_HTTP_SRV_CONF | NGX_HTTP_LOC_CONF | NGX_CONF_FLAG,
     ngx_conf_set_flag_slot, NGX_HTTP_LOC_CONF_OFFSET, offsetof(ngx_http_nowait_loc_conf_t, enable), NULL},
    {ngx_string("nowait_buffers"), NGX_HTTP_MAIN_CONF | NGX_HTTP_SRV_CONF | NGX_HTTP_LOC_CONF | NGX_CONF_TAKE2,
     ngx_conf_set_bufs_slot, NGX_HTTP_LOC_CONF_OFFSET, offsetof(ngx_http_nowait_loc_conf_t, bufs), NULL},
    ngx_null_command};

static ngx_http_module_t ngx_http_nowait_module_ctx = {
    NULL, ngx_http_nowait_init, NULL, NULL, NULL, NULL, ngx_http_nowait_create_conf, ngx_http_nowait_merge_conf};

ngx_module_t ngx_http_nowait_module = {NGX_MODULE_V1,
                                       &ngx_http_nowait_module_ctx,
                                       ngx_http_nowait_commands,
                                       NGX_HTTP_MODULE,
                                       NULL,
                                       NULL,
                                       ngx_http_nowait_init_process,
                                       NULL,
                                       NULL,
                                       NULL,
                                       NULL,
                                       NGX_MODULE_V1_PADDING};

static ngx_http_output_body_filter_pt ngx_http_next_body_filter;

/* The engine of this worker process, and its eventfd in the event loop. */
static struct nw_engine *ngx_http_nowait_engine;
static ngx_connection_t ngx_http_nowait_connection;
static ngx_event_t ngx_http_nowait_read, ngx_http_nowait_write;

/* Continues a request whose read has ended. */
static void ngx_http_nowait_ended(ngx_http_nowait_ctx_t *ctx, int64_t result)
{
    ngx_http_request_t *r = ctx->request;
    ngx_connection_t *c = r->connection;

    ctx->result = result;
    ctx->in_flight = 0;
    ngx_http_set_log_request(c->log, r);
    r->main->blocked--;
    r->aio = 0;
    if (r->done) {
        /* A subrequest that was finalized meanwhile: the connection goes on. */
        c->write->handler(c->write);
        return;
    }
    r->write_event_handler(r);
    ngx_http_run_posted_requests(c);
}

/* The eventfd is readable: takes the completions. */
static void ngx_http_nowait_reap(ngx_event_t *ev)
{
    struct nw_completion done[64];
    int i, n;

    do {
        n = nw_reap(ngx_http_nowait_engine, done, 64, 0, NULL);
        if (n < 0) {
            ngx_log_error(NGX_LOG_ALERT, ev->log, (ngx_err_t)-n, "nw_reap() failed");
            return;
        }
        for (i = 0; i < n; i++)
            ngx_http_nowait_ended((ngx_http_nowait_ctx_t *)(uintptr_t)done[i].user_data, done[i].result);
    } while (n == 64);
}

static void ngx_http_nowait_forget(void *data)
{
    ngx_http_nowait_ctx_t *ctx = data;

    if (ctx->file != NULL)
        nw_file_close(ctx->file);
    ctx->file = NULL;
}

static ngx_http_nowait_ctx_t *ngx_http_nowait_context(ngx_http_request_t *r)
{
    ngx_http_nowait_ctx_t *ctx = ngx_http_get_module_ctx(r, ngx_http_nowait_module);
    ngx_pool_cleanup_t *cleanup;

    if (ctx != NULL)
        return ctx;
    ctx = ngx_pcalloc(r->pool, sizeof(ngx_http_nowait_ctx_t));
    if (ctx == NULL)
        return NULL;
    ctx->request = r;
    ctx->fd = NGX_INVALID_FILE;
    /* It runs before the one that closes the file, which was added earlier. */
    cleanup = ngx_pool_cleanup_add(r->pool, 0);
    if (cleanup == NULL)
        return NULL;
    cleanup->handler = ngx_http_nowait_forget;
    cleanup->data = ctx;
    ngx_http_set_ctx(r, ctx, ngx_http_nowait_module);
    return ctx;
}

/* Returns true if the filter reads this buffer. */
static ngx_uint_t ngx_http_nowait_reads(ngx_buf_t *b)
{
    return b->in_file && !ngx_buf_in_memory(b) && !b->file->directio && b->file_pos < b->file_last;
}

/* A link with a buffer of ours that nothing uses. Null if all are in use, or without memory: *failed is then 1. */
static ngx_chain_t *ngx_http_nowait_buffer(ngx_http_request_t *r, ngx_http_nowait_ctx_t *ctx, ngx_int_t *failed)
{
    ngx_http_nowait_loc_conf_t *conf = ngx_http_get_module_loc_conf(r, ngx_http_nowait_module);
    ngx_chain_t *link = ctx->free;

    if (link != NULL) {
        ctx->free = link->next;
        link->next = NULL;
        return link;
    }
    if (ctx->allocated == conf->bufs.num)
        return NULL;
    link = ngx_alloc_chain_link(r->pool);
    if (link == NULL || (link->buf = ngx_create_temp_buf(r->pool, conf->bufs.size)) == NULL) {
        *failed = 1;
        return NULL;
    }
    link->buf->tag = (ngx_buf_tag_t)&ngx_http_nowait_module;
    link->buf->recycled = 1;
    link->next = NULL;
    ctx->allocated++;
    return link;
}

/* Begins the read of the next block of a file buffer into ctx->reading. Returns NGX_OK if it has ended, NGX_AGAIN if it is
 * in flight, or NGX_ERROR. */
static ngx_int_t ngx_http_nowait_submit(ngx_http_request_t *r, ngx_http_nowait_ctx_t *ctx, ngx_buf_t *in)
{
    struct nw_completion done;
    struct nw_op op;
    off_t left = in->file_last - in->file_pos;
    size_t size = ctx->reading->end - ctx->reading->start;
    int said;

    if (ctx->file == NULL || ctx->fd != in->file->fd) {
        ngx_http_nowait_forget(ctx);
        said = nw_file_open(in->file->fd, &ctx->file);
        if (said < 0) {
            ngx_log_error(NGX_LOG_CRIT, r->connection->log, (ngx_err_t)-said, "nw_file_open() \"%V\" failed",
                          &in->file->name);
            return NGX_ERROR;
        }
        ctx->fd = in->file->fd;
    }
    ngx_memzero(&op, sizeof(op));
    op.opcode = NW_OP_READ;
    op.file = ctx->file;
    op.addr = ctx->reading->start;
    op.len = (off_t)size < left ? size : (size_t)left;
    op.offset = (uint64_t)in->file_pos;
    op.user_data = (uint64_t)(uintptr_t)ctx;
    said = nw_submit(ngx_http_nowait_engine, &op, &done);
    switch (said) {
    case NW_QUEUED:
        ctx->in_flight = 1;
        r->main->blocked++;
        r->aio = 1;
        return NGX_AGAIN;
    case NW_DONE:
        ctx->result = done.result;
        return NGX_OK;
    case NW_FULL:
        /* As many reads are in flight as the engine allows: this one waits here. */
        ctx->result = pread(in->file->fd, ctx->reading->start, op.len, in->file_pos);
        if (ctx->result < 0)
            ctx->result = -ngx_errno;
        return NGX_OK;
    default:
        ctx->result = said;
        return NGX_OK;
    }
}

/* Makes a memory buffer of the block that was read. */
static ngx_int_t ngx_http_nowait_take(ngx_http_request_t *r, ngx_http_nowait_ctx_t *ctx, ngx_buf_t *in, ngx_buf_t *out)
{
    if (ctx->result < 0) {
        ngx_log_error(NGX_LOG_CRIT, r->connection->log, (ngx_err_t)-ctx->result, "reading \"%V\" failed",
                      &in->file->name);
        return NGX_ERROR;
    }
    if (ctx->result == 0) {
        ngx_log_error(NGX_LOG_ALERT, r->connection->log, 0, "\"%V\" was truncated while it was sent", &in->file->name);
        return NGX_ERROR;
    }
    out->pos = out->start;
    out->last = out->start + ctx->result;
    in->file_pos += ctx->result;
    if (in->file_pos == in->file_last) {
        out->flush = in->flush;
        out->last_buf = in->last_buf;
        out->last_in_chain = in->last_in_chain;
    } else {
        out->flush = out->last_buf = out->last_in_chain = 0;
    }
    return NGX_OK;
}

/* Moves what is read from ctx->in to *out. Returns NGX_OK if nothing is left, NGX_AGAIN if a read is in flight,
 * NGX_DECLINED if all buffers are in use, or NGX_ERROR. */
static ngx_int_t ngx_http_nowait_fill(ngx_http_request_t *r, ngx_http_nowait_ctx_t *ctx, ngx_chain_t **out)
{
    ngx_chain_t *link;
    ngx_int_t rc, failed = 0;

    while (ctx->in != NULL) {
        ngx_buf_t *b = ctx->in->buf;

        if (!ngx_http_nowait_reads(b)) {
            link = ctx->in;
            ctx->in = link->next;
            link->next = NULL;
            *out = link;
            out = &link->next;
            continue;
        }
        if (ctx->reading == NULL) {
            link = ngx_http_nowait_buffer(r, ctx, &failed);
            if (link == NULL)
                return failed ? NGX_ERROR : NGX_DECLINED;
            ctx->reading = link->buf;
            rc = ngx_http_nowait_submit(r, ctx, b);
            ngx_free_chain(r->pool, link);
            if (rc != NGX_OK)
                return rc;
        }
        link = ngx_alloc_chain_link(r->pool);
        if (link == NULL || ngx_http_nowait_take(r, ctx, b, ctx->reading) != NGX_OK)
            return NGX_ERROR;
        link->buf = ctx->reading;
        link->next = NULL;
        ctx->reading = NULL;
        *out = link;
        out = &link->next;
        if (b->file_pos == b->file_last) {
            link = ctx->in;
            ctx->in = link->next;
            ngx_free_chain(r->pool, link);
        }
    }
    return NGX_OK;
}

static ngx_int_t ngx_http_nowait_filter(ngx_http_request_t *r, ngx_chain_t *in)
{
    ngx_http_nowait_loc_conf_t *conf = ngx_http_get_module_loc_conf(r, ngx_http_nowait_module);
    ngx_http_nowait_ctx_t *ctx = ngx_http_get_module_ctx(r, ngx_http_nowait_module);
    ngx_chain_t *link, *out;
    ngx_int_t filled, passed = NGX_OK;

    if (ctx == NULL) {
        for (link = in; link != NULL && !ngx_http_nowait_reads(link->buf); link = link->next)
            continue;
        if (!conf->enable || link == NULL)
            return ngx_http_next_body_filter(r, in);
        ctx = ngx_http_nowait_context(r);
        if (ctx == NULL)
            return NGX_ERROR;
    }
    if (in != NULL && ngx_chain_add_copy(r->pool, &ctx->in, in) != NGX_OK)
        return NGX_ERROR;
    if (ctx->in_flight)
        return NGX_AGAIN;
    do {
        out = NULL;
        filled = ngx_http_nowait_fill(r, ctx, &out);
        if (filled == NGX_ERROR)
            return NGX_ERROR;
        /* Without anything new the next filters are called for what they have not sent yet. */
        if (out != NULL || ctx->busy != NULL || filled == NGX_OK) {
            passed = ngx_http_next_body_filter(r, out);
            if (passed == NGX_ERROR)
                return NGX_ERROR;
            ngx_chain_update_chains(r->pool, &ctx->free, &ctx->busy, &out, (ngx_buf_tag_t)&ngx_http_nowait_module);
        }
    } while (filled == NGX_DECLINED && ctx->free != NULL);

    /* nginx calls again while a filter has something. */
    if (filled == NGX_OK) {
        r->buffered &= ~NGX_HTTP_NOWAIT_BUFFERED;
        return passed;
    }
    r->buffered |= NGX_HTTP_NOWAIT_BUFFERED;
    return NGX_AGAIN;
}

static ngx_int_t ngx_http_nowait_init_process(ngx_cycle_t *cycle)
{
    struct nw_engine_options options;
    int said;

    if (ngx_process != NGX_PROCESS_WORKER && ngx_process != NGX_PROCESS_SINGLE)
        return NGX_OK;
    ngx_memzero(&options, sizeof(options));
    options.size = sizeof(options);
    options.flags = NW_ENGINE_LOCAL;
    said = nw_engine_create(&options, &ngx_http_nowait_engine);
    if (said < 0) {
        ngx_log_error(NGX_LOG_EMERG, cycle->log, (ngx_err_t)-said, "nw_engine_create() failed");
        return NGX_ERROR;
    }
    said = nw_engine_event_fd(ngx_http_nowait_engine);
    if (said < 0) {
        ngx_log_error(NGX_LOG_EMERG, cycle->log, (ngx_err_t)-said, "nw_engine_event_fd() failed");
        return NGX_ERROR;
    }
    /* As the event module does it for its own eventfd: not a connection of the pool, which a shutdown waits for. */
    ngx_http_nowait_read.data = &ngx_http_nowait_connection;
    ngx_http_nowait_read.handler = ngx_http_nowait_reap;
    ngx_http_nowait_read.log = cycle->log;
    ngx_http_nowait_write.data = &ngx_http_nowait_connection;
    ngx_http_nowait_write.write = 1;
    ngx_http_nowait_write.log = cycle->log;
    ngx_http_nowait_connection.fd = said;
    ngx_http_nowait_connection.read = &ngx_http_nowait_read;
    ngx_http_nowait_connection.write = &ngx_http_nowait_write;
    ngx_http_nowait_connection.log = cycle->log;
    return ngx_add_event(&ngx_http_nowait_read, NGX_READ_EVENT, NGX_LEVEL_EVENT);
}

static ngx_int_t ngx_http_nowait_init(ngx_conf_t *cf)
{
    (void)cf;
    ngx_http_next_body_filter = ngx_http_top_body_filter;
    ngx_http_top_body_filter = ngx_http_nowait_filter;
    return NGX_OK;
}

static void *ngx_http_nowait_create_conf(ngx_conf_t *cf)
{
    ngx_http_nowait_loc_conf_t *conf = ngx_pcalloc(cf->pool, sizeof(ngx_http_nowait_loc_conf_t));

    if (conf != NULL)
        conf->enable = NGX_CONF_UNSET;
    return conf;
}

static char *ngx_http_nowait_merge_conf(ngx_conf_t *cf, void *parent, void *child)
{
    ngx_http_nowait_loc_conf_t *prev = parent, *conf = child;

    (void)cf;
    ngx_conf_merge_value(conf->enable, prev->enable, 0);
    ngx_conf_merge_bufs_value(conf->bufs, prev->bufs, 2, 64 * 1024);
    return NGX_CONF_OK;
}
