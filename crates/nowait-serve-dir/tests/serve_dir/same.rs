//! Many requests, each to both backends: the responses are equal.

use http::Method;
use nowait_serve_dir::NowaitBackend;
use slowdisk::{Filesystem, TestMount};
use tower_http::services::ServeDir;
use tower_http::services::fs::{Backend, DefaultServeDirFallback, TokioBackend};

use crate::site::{Site, ask, request};

const PATHS: [&str; 22] = [
    "/",
    "/text.txt",
    "/text.txt/",
    "/text.txt/more",
    "/few.txt",
    "/noext",
    "/only.txt",
    "/page",
    "/page.html",
    "/empty",
    "/large",
    "/none",
    "/none/",
    "/sub",
    "/sub/",
    "/sub/empty",
    "/sub/empty/",
    "/sub//style.css",
    "/%00",
    "/%2e%2e/secret",
    "/%ff",
    "/..%2fsecret",
];

const HEADERS: [&[(&str, &str)]; 14] = [
    &[],
    &[("accept-encoding", "gzip, br, zstd, deflate")],
    &[("accept-encoding", "br;q=0.5, gzip;q=0.4, identity;q=0.1")],
    &[("range", "bytes=0-")],
    &[("range", "bytes=2-3")],
    &[("range", "bytes=-2")],
    &[("range", "bytes=100000-99999999")],
    &[("range", "bytes=9999999-")],
    &[("range", "bytes=3-1")],
    &[("range", "bytes=0-0,2-2")],
    &[("range", "bytes=1-2"), ("accept-encoding", "gzip")],
    &[("if-none-match", "*")],
    &[("if-match", "\"another\"")],
    &[("if-modified-since", "Sun, 09 Sep 2001 01:46:40 GMT")],
];

type Service<B> = ServeDir<DefaultServeDirFallback, B>;

fn plain<B: Backend>(service: Service<B>) -> Service<B> {
    service
}

fn precompressed<B: Backend>(service: Service<B>) -> Service<B> {
    service
        .precompressed_gzip()
        .precompressed_br()
        .precompressed_deflate()
        .precompressed_zstd()
        .ignore_multi_range_requests(true)
}

fn other<B: Backend>(service: Service<B>) -> Service<B> {
    service
        .html_as_default_extension(true)
        .redirect_to_trailing_slash(false)
        .with_buf_chunk_size(1 << 20)
        .precompressed_br()
}

#[tokio::test]
async fn responses_are_those_of_tokios_backend() {
    compare(&Site::new()).await;
}

#[tokio::test]
async fn responses_are_those_of_tokios_backend_on_overlayfs() {
    slowdisk::require!(Filesystem::Overlay.available());
    let base = TestMount::new(Filesystem::Ext4).unwrap();
    let mount = TestMount::overlay(base).unwrap();
    compare(&Site::within(mount.path())).await;
}

async fn compare(site: &Site) {
    let theirs = site.serve(TokioBackend);
    let ours = site.serve(NowaitBackend::new());
    let settings = [
        (plain(theirs.clone()), plain(ours.clone())),
        (precompressed(theirs.clone()), precompressed(ours.clone())),
        (other(theirs), other(ours)),
    ];
    for path in PATHS {
        for headers in HEADERS {
            for method in [Method::GET, Method::HEAD, Method::POST] {
                for (theirs, ours) in &settings {
                    let want = ask(theirs, request(method.clone(), path, headers)).await;
                    let got = ask(ours, request(method.clone(), path, headers)).await;
                    assert!(
                        got == want,
                        "{method} {path} {headers:?}: {:?}",
                        got.headers
                    );
                }
            }
        }
    }
}
