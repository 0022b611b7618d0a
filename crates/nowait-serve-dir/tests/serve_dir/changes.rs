//! Files that change between requests, and between the response's headers and its body.

use std::fs;

use http::{Method, StatusCode};
use nowait_serve_dir::NowaitBackend;
use tower_http::services::fs::Backend;

use crate::on_both;
use crate::site::{LARGE, Site, begin, finish, get, large, request};

on_both! {
    each_response_is_of_the_file_that_is_there
    a_response_continues_with_the_file_that_it_opened
    the_body_of_a_truncated_file_ends_early
    a_dropped_body_harms_no_other
}

async fn each_response_is_of_the_file_that_is_there<B: Backend>(backend: B) {
    let site = Site::new();
    let service = site.serve(backend);
    for round in 0..10 {
        let text = "x".repeat(round * 1000);
        match round % 2 {
            0 => site.write("text.txt", text.as_bytes()),
            _ => {
                site.write("next", text.as_bytes());
                fs::rename(site.path("next"), site.path("text.txt")).unwrap();
            }
        }
        let answer = get(&service, "/text.txt", &[]).await;
        assert_eq!(answer.text(), (200, &*text));
        assert_eq!(answer.header("content-length"), text.len().to_string());
    }
    fs::remove_file(site.path("text.txt")).unwrap();
    assert_eq!(
        get(&service, "/text.txt", &[]).await.status,
        StatusCode::NOT_FOUND
    );
    fs::create_dir(site.path("text.txt")).unwrap();
    assert_eq!(get(&service, "/text.txt", &[]).await.text(), (307, ""));
}

async fn a_response_continues_with_the_file_that_it_opened<B: Backend>(backend: B) {
    let site = Site::new();
    let service = site.serve(backend);
    for cold in [false, true] {
        for removed in [false, true] {
            site.write("large", &large());
            if cold {
                site.evict("large");
            }
            let response = begin(&service, request(Method::GET, "/large", &[])).await;
            if removed {
                fs::remove_file(site.path("large")).unwrap();
            } else {
                site.write("next", b"another");
                fs::rename(site.path("next"), site.path("large")).unwrap();
            }
            let answer = finish(response).await;
            assert!(answer.body == large(), "{} bytes", answer.body.len());
        }
    }
}

async fn the_body_of_a_truncated_file_ends_early<B: Backend>(backend: B) {
    let site = Site::new();
    let service = site.serve(backend);
    for len in [0, 1, 70_000, LARGE - 1] {
        for range in [&[][..], &[("range", "bytes=0-5000000")]] {
            site.write("large", &large());
            let response = begin(&service, request(Method::GET, "/large", range)).await;
            let file = fs::File::options().write(true).open(site.path("large"));
            file.unwrap().set_len(len as u64).unwrap();
            let answer = finish(response).await;
            assert_eq!(answer.header("content-length"), LARGE.to_string());
            assert_eq!(answer.error, None);
            assert!(
                answer.body == large()[..len],
                "{len}: {}",
                answer.body.len()
            );
        }
    }
}

#[tokio::test]
async fn a_grown_file_makes_no_response_longer() {
    let backend = NowaitBackend::new();
    let site = Site::new();
    let service = site.serve(backend);
    let response = begin(&service, request(Method::GET, "/text.txt", &[])).await;
    fs::write(site.path("text.txt"), "plain and more").unwrap();
    let answer = finish(response).await;
    assert_eq!(answer.header("content-length"), "5");
    assert_eq!(answer.text(), (200, "plain"));
}

async fn a_dropped_body_harms_no_other<B: Backend>(backend: B) {
    let site = Site::new();
    let service = site.serve(backend);
    for _ in 0..20 {
        site.evict("large");
        drop(begin(&service, request(Method::GET, "/large", &[])).await);
        let polled = begin(&service, request(Method::GET, "/large", &[])).await;
        let mut reading = Box::pin(finish(polled));
        let once =
            std::future::poll_fn(|cx| std::task::Poll::Ready(reading.as_mut().poll(cx).is_ready()));
        once.await;
        drop(reading);
        assert_eq!(get(&service, "/text.txt", &[]).await.text(), (200, "plain"));
    }
    assert!(get(&service, "/large", &[]).await.body == large());
}
