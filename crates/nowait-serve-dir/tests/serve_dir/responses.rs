//! Methods, headers, conditions, ranges and precompressed files.

use std::convert::Infallible;
use std::time::{Duration, SystemTime};

use http::{Method, Request, Response, StatusCode};
use tower_http::services::fs::Backend;

use crate::on_both;
use crate::site::{LARGE, MODIFIED, NoBody, Site, ask, get, large, request};

on_both! {
    a_file_is_served_with_its_headers
    head_is_get_without_the_body
    other_methods_are_refused_or_go_to_the_fallback
    files_arrive_byte_by_byte_warm_and_cold
    one_range_is_served
    several_and_invalid_ranges_are_refused
    a_range_of_an_empty_file_is_empty
    conditions_by_date
    conditions_by_tag
    precompressed_files_are_preferred_as_the_client_accepts
    a_missing_precompressed_file_is_replaced_by_another
    other_chunk_sizes_bring_the_same_bytes
}

fn date(seconds: u64) -> String {
    httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
}

async fn a_file_is_served_with_its_headers<B: Backend>(backend: B) {
    let site = Site::new();
    let service = site.serve(backend);
    for (path, kind, body) in [
        ("/text.txt", "text/plain", "plain"),
        ("/page.html", "text/html", "<p>page"),
        ("/sub/style.css", "text/css", "p {}"),
        ("/noext", "application/octet-stream", "no extension"),
        ("/empty", "application/octet-stream", ""),
    ] {
        let answer = get(&service, path, &[]).await;
        assert_eq!(answer.text(), (200, body));
        assert_eq!(answer.header("content-type"), kind);
        assert_eq!(answer.header("content-length"), body.len().to_string());
        assert_eq!(answer.header("accept-ranges"), "bytes");
        assert_eq!(answer.header("last-modified"), date(MODIFIED));
        assert!(answer.header("etag").starts_with('"'));
        assert_eq!(answer.header("vary"), "");
    }
}

async fn head_is_get_without_the_body<B: Backend>(backend: B) {
    let site = Site::new();
    let service = site.serve(backend).precompressed_gzip();
    for path in [
        "/text.txt",
        "/large",
        "/empty",
        "/sub/",
        "/sub",
        "/none",
        "/only.txt",
    ] {
        for headers in [
            &[][..],
            &[("accept-encoding", "gzip")],
            &[("range", "bytes=1-3")],
        ] {
            let of_get = get(&service, path, headers).await;
            let of_head = ask(&service, request(Method::HEAD, path, headers)).await;
            assert_eq!(of_head.status, of_get.status, "{path} {headers:?}");
            assert_eq!(of_head.headers, of_get.headers, "{path} {headers:?}");
            assert_eq!(of_head.body, b"", "{path} {headers:?}");
        }
    }
}

async fn other_methods_are_refused_or_go_to_the_fallback<B: Backend>(backend: B) {
    let site = Site::new();
    let service = site.serve(backend.clone());
    let fallback = tower::service_fn(|request: Request<NoBody>| async move {
        Ok::<_, Infallible>(Response::new(format!("fallback for {}", request.method())))
    });
    let calling = site
        .serve(backend)
        .call_fallback_on_method_not_allowed(true)
        .fallback(fallback);
    for method in [Method::POST, Method::PUT, Method::DELETE, Method::OPTIONS] {
        let answer = ask(&service, request(method.clone(), "/text.txt", &[])).await;
        assert_eq!(answer.text(), (405, ""));
        assert_eq!(answer.header("allow"), "GET,HEAD");
        let answer = ask(&calling, request(method.clone(), "/text.txt", &[])).await;
        assert_eq!(answer.text(), (200, &*format!("fallback for {method}")));
    }
}

async fn files_arrive_byte_by_byte_warm_and_cold<B: Backend>(backend: B) {
    let site = Site::new();
    let service = site.serve(backend);
    let bytes = large();
    for cold in [false, true, false] {
        if cold {
            site.evict("large");
        }
        let answer = get(&service, "/large", &[]).await;
        assert_eq!((answer.status, answer.error), (StatusCode::OK, None));
        assert_eq!(answer.header("content-length"), LARGE.to_string());
        assert!(answer.body == bytes, "{} bytes", answer.body.len());
    }
}

async fn one_range_is_served<B: Backend>(backend: B) {
    let site = Site::new();
    let service = site.serve(backend);
    let bytes = large();
    for (range, part) in [
        ("0-0", 0..1),
        ("0-", 0..LARGE),
        ("1-99999", 1..100_000),
        ("65535-65536", 65_535..65_537),
        ("4096-8191", 4096..8192),
        ("2000000-3999999", 2_000_000..4_000_000),
        ("5000000-", LARGE - 1..LARGE),
        ("4999999-9999999999", 4_999_999..LARGE),
        ("-1", LARGE - 1..LARGE),
        ("-70000", LARGE - 70_000..LARGE),
    ] {
        for cold in [false, true] {
            if cold {
                site.evict("large");
            }
            let header = format!("bytes={range}");
            let answer = get(&service, "/large", &[("range", &header)]).await;
            assert_eq!(answer.status, StatusCode::PARTIAL_CONTENT, "{range}");
            let words = format!("bytes {}-{}/{LARGE}", part.start, part.end - 1);
            assert_eq!(answer.header("content-range"), words);
            assert_eq!(answer.header("content-length"), part.len().to_string());
            assert!(answer.body == bytes[part.clone()], "{range}");
        }
    }
}

async fn several_and_invalid_ranges_are_refused<B: Backend>(backend: B) {
    let site = Site::new();
    let service = site.serve(backend.clone());
    for range in [
        "bytes=-5000002",
        "bytes=5000001-",
        "bytes=9-5",
        "bytes=",
        "bytes=-0",
        "lines=1-2",
        "nonsense",
    ] {
        let answer = get(&service, "/large", &[("range", range)]).await;
        assert_eq!(answer.text(), (416, ""), "{range}");
        assert_eq!(answer.header("content-range"), format!("bytes */{LARGE}"));
    }
    let several = &[("range", "bytes=0-1,4-5")];
    let answer = get(&service, "/text.txt", several).await;
    assert_eq!(
        answer.text(),
        (416, "Cannot serve multipart range requests")
    );
    let ignoring = site.serve(backend).ignore_multi_range_requests(true);
    assert_eq!(
        get(&ignoring, "/text.txt", several).await.text(),
        (200, "plain")
    );
}

async fn a_range_of_an_empty_file_is_empty<B: Backend>(backend: B) {
    let site = Site::new();
    let service = site.serve(backend);
    let answer = get(&service, "/empty", &[("range", "bytes=0-")]).await;
    assert_eq!(answer.text(), (206, ""));
    assert_eq!(answer.header("content-length"), "0");
}

async fn conditions_by_date<B: Backend>(backend: B) {
    let site = Site::new();
    let service = site.serve(backend);
    for (header, seconds, status) in [
        ("if-modified-since", MODIFIED - 1, 200),
        ("if-modified-since", MODIFIED, 304),
        ("if-modified-since", MODIFIED + 1, 304),
        ("if-unmodified-since", MODIFIED - 1, 412),
        ("if-unmodified-since", MODIFIED, 200),
        ("if-unmodified-since", MODIFIED + 1, 200),
    ] {
        for method in [Method::GET, Method::HEAD] {
            let date = date(seconds);
            let headers = [(header, &*date)];
            let answer = ask(&service, request(method.clone(), "/text.txt", &headers)).await;
            assert_eq!(answer.status, status, "{header}: {date}");
            let served = status == 200 && method == Method::GET;
            assert_eq!(answer.body, if served { &b"plain"[..] } else { b"" });
        }
    }
    let invalid = [("if-modified-since", "yesterday")];
    assert_eq!(
        get(&service, "/text.txt", &invalid).await.text(),
        (200, "plain")
    );
}

async fn conditions_by_tag<B: Backend>(backend: B) {
    let site = Site::new();
    let service = site.serve(backend);
    let tag = get(&service, "/text.txt", &[])
        .await
        .header("etag")
        .to_owned();
    for (header, value, status) in [
        ("if-none-match", &*tag, 304),
        ("if-none-match", "*", 304),
        ("if-none-match", &format!("\"a\", W/{tag}"), 304),
        ("if-none-match", "\"another\"", 200),
        ("if-match", &*tag, 200),
        ("if-match", "*", 200),
        ("if-match", &format!("W/{tag}"), 412),
        ("if-match", "\"another\"", 412),
    ] {
        let answer = get(&service, "/text.txt", &[(header, value)]).await;
        assert_eq!(answer.status, status, "{header}: {value}");
    }
    site.write("text.txt", b"changed");
    let answer = get(&service, "/text.txt", &[("if-none-match", &tag)]).await;
    assert_eq!(answer.text(), (200, "changed"));
}

async fn precompressed_files_are_preferred_as_the_client_accepts<B: Backend>(backend: B) {
    let site = Site::new();
    let service = site
        .serve(backend.clone())
        .precompressed_gzip()
        .precompressed_br()
        .precompressed_deflate()
        .precompressed_zstd();
    for (accept, encoding, body) in [
        ("gzip", "gzip", "gzip"),
        ("br", "br", "brotli"),
        ("deflate", "deflate", "deflate"),
        ("zstd", "zstd", "zstd"),
        ("identity", "", "plain"),
        ("unknown", "", "plain"),
        ("gzip;q=0.2, br;q=0.9", "br", "brotli"),
        ("gzip;q=0.9, br;q=0.2", "gzip", "gzip"),
        ("gzip;q=0", "", "plain"),
    ] {
        let answer = get(&service, "/text.txt", &[("accept-encoding", accept)]).await;
        assert_eq!(answer.text(), (200, body), "{accept}");
        assert_eq!(answer.header("content-encoding"), encoding, "{accept}");
        assert_eq!(answer.header("content-type"), "text/plain");
        assert_eq!(answer.header("vary"), "accept-encoding");
    }
    let headers = [("accept-encoding", "gzip"), ("range", "bytes=1-2")];
    let answer = get(&service, "/text.txt", &headers).await;
    assert_eq!(answer.text(), (206, "zi"));
    // A service without the option for precompressed files has none.
    let answer = get(&site.serve(backend), "/text.txt", &headers[..1]).await;
    assert_eq!(answer.text(), (200, "plain"));
}

async fn a_missing_precompressed_file_is_replaced_by_another<B: Backend>(backend: B) {
    let site = Site::new();
    let service = site.serve(backend).precompressed_gzip().precompressed_br();
    for (path, accept, text) in [
        ("/few.txt", "br, gzip;q=0.5", (200, "few gzip")),
        ("/few.txt", "br", (200, "few")),
        ("/noext", "br", (200, "no extension brotli")),
        ("/noext", "gzip", (200, "no extension")),
        ("/only.txt", "gzip", (200, "only gzip")),
        ("/only.txt", "br", (404, "")),
        ("/none.txt", "gzip, br", (404, "")),
    ] {
        // The kernel knows of the missing name from the second request on.
        for _ in 0..2 {
            let answer = get(&service, path, &[("accept-encoding", accept)]).await;
            assert_eq!(answer.text(), text, "{path} {accept}");
        }
    }
    site.write("few.txt.br", b"few brotli");
    let answer = get(&service, "/few.txt", &[("accept-encoding", "br")]).await;
    assert_eq!(answer.text(), (200, "few brotli"));
}

async fn other_chunk_sizes_bring_the_same_bytes<B: Backend>(backend: B) {
    let site = Site::new();
    let bytes = large();
    for size in [1000, 4096, 1 << 20, 16 << 20] {
        let service = site.serve(backend.clone()).with_buf_chunk_size(size);
        let answer = get(&service, "/large", &[]).await;
        assert!(answer.body == bytes, "{size}: {} bytes", answer.body.len());
        let answer = get(&service, "/large", &[("range", "bytes=999-1000000")]).await;
        assert!(answer.body == bytes[999..=1_000_000], "{size}");
    }
}
