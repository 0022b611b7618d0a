//! The file that a path names: directories, missing files, fallbacks, and paths that lead out of the root.

use std::convert::Infallible;
use std::os::unix::fs::symlink;

use http::{Request, Response};
use tower_http::services::ServeFile;
use tower_http::services::fs::Backend;

use crate::on_both;
use crate::site::{NoBody, Site, get};

on_both! {
    a_directory_is_its_index_after_a_redirect
    a_directory_without_an_index_is_not_found
    html_is_the_default_extension_if_asked_for
    encoded_paths_are_decoded
    no_path_leaves_the_root
    symbolic_links_are_followed
    a_fallback_answers_for_missing_files
    a_missing_file_is_found_once_it_is_there
}

async fn a_directory_is_its_index_after_a_redirect<B: Backend>(backend: B) {
    let site = Site::new();
    let service = site.serve(backend.clone());
    assert_eq!(get(&service, "/sub/", &[]).await.text(), (200, "<p>index"));
    let answer = get(&service, "/sub?a=b", &[]).await;
    assert_eq!(answer.text(), (307, ""));
    assert_eq!(answer.header("location"), "/sub/?a=b");
    let prefixed = site.serve(backend.clone()).redirect_path_prefix("/static");
    let answer = get(&prefixed, "/sub", &[]).await;
    assert_eq!(answer.header("location"), "/static/sub/");
    let direct = site.serve(backend).redirect_to_trailing_slash(false);
    assert_eq!(get(&direct, "/sub", &[]).await.text(), (200, "<p>index"));
}

async fn a_directory_without_an_index_is_not_found<B: Backend>(backend: B) {
    let site = Site::new();
    let service = site.serve(backend.clone());
    for path in ["/", "/sub/empty/"] {
        assert_eq!(get(&service, path, &[]).await.text(), (404, ""));
    }
    let without = site.serve(backend).append_index_html_on_directories(false);
    for path in ["/sub/", "/sub", "/"] {
        assert_eq!(get(&without, path, &[]).await.text(), (404, ""));
    }
}

async fn html_is_the_default_extension_if_asked_for<B: Backend>(backend: B) {
    let site = Site::new();
    let service = site.serve(backend.clone()).html_as_default_extension(true);
    assert_eq!(get(&service, "/page", &[]).await.text(), (200, "<p>page"));
    assert_eq!(get(&service, "/none", &[]).await.text(), (404, ""));
    assert_eq!(
        get(&site.serve(backend), "/page", &[]).await.text(),
        (404, "")
    );
}

async fn encoded_paths_are_decoded<B: Backend>(backend: B) {
    let site = Site::new();
    let service = site.serve(backend);
    for (path, text) in [
        ("/with%20space.txt", (200, "space")),
        ("/%E6%97%A5%E6%9C%AC.txt", (200, "本")),
        ("/%74ext.txt", (200, "plain")),
        ("/sub%2fstyle.css", (200, "p {}")),
        ("/.hidden", (200, "hidden")),
        ("//sub//style.css", (200, "p {}")),
        ("/./sub/./style.css", (200, "p {}")),
        ("/text.txt?query=1", (200, "plain")),
        ("/text.txt%00", (404, "")),
        ("/%00", (404, "")),
        ("/%ff", (404, "")),
        ("/%", (404, "")),
        ("/%zz", (404, "")),
        ("/text%252etxt", (404, "")),
    ] {
        assert_eq!(get(&service, path, &[]).await.text(), text, "{path}");
    }
}

async fn no_path_leaves_the_root<B: Backend>(backend: B) {
    let site = Site::new();
    let service = site.serve(backend);
    let long = format!("/{}", "a".repeat(300));
    let deep = format!("/{}", "a/".repeat(3000));
    for path in [
        "/../secret",
        "/sub/../../secret",
        "/sub/../text.txt",
        "/%2e%2e/secret",
        "/%2E%2E%2Fsecret",
        "/..%2fsecret",
        "/sub/%2e%2e/%2e%2e/secret",
        "/%2fetc/passwd",
        "/none",
        "/none/",
        "/text.txt/",
        "/text.txt/more",
    ] {
        assert_eq!(get(&service, path, &[]).await.text(), (404, ""), "{path}");
    }
    // ENAMETOOLONG is an error of the server.
    for path in [long, deep] {
        assert_eq!(get(&service, &path, &[]).await.text(), (500, ""));
    }
}

async fn symbolic_links_are_followed<B: Backend>(backend: B) {
    let site = Site::new();
    let service = site.serve(backend);
    symlink("../secret", site.path("out")).unwrap();
    symlink("sub", site.path("directory")).unwrap();
    symlink("none", site.path("dangling")).unwrap();
    symlink("loop", site.path("loop")).unwrap();
    for (path, text) in [
        ("/out", (200, "secret")),
        ("/directory/", (200, "<p>index")),
        ("/directory/style.css", (200, "p {}")),
        ("/dangling", (404, "")),
        ("/loop", (500, "")),
    ] {
        assert_eq!(get(&service, path, &[]).await.text(), text, "{path}");
    }
}

async fn a_fallback_answers_for_missing_files<B: Backend>(backend: B) {
    let site = Site::new();
    let fallback = tower::service_fn(|request: Request<NoBody>| async move {
        Ok::<_, Infallible>(Response::new(format!("no {}", request.uri().path())))
    });
    let service = site.serve(backend.clone()).fallback(fallback);
    for path in [
        "/none",
        "/%00",
        "/../secret",
        "/sub/empty/",
        "/text.txt/more",
    ] {
        let text = format!("no {path}");
        assert_eq!(get(&service, path, &[]).await.text(), (200, &*text));
    }
    assert_eq!(get(&service, "/text.txt", &[]).await.text(), (200, "plain"));
    let page = ServeFile::new(site.path("page.html"));
    let service = site.serve(backend).not_found_service(page);
    assert_eq!(get(&service, "/none", &[]).await.text(), (404, "<p>page"));
}

async fn a_missing_file_is_found_once_it_is_there<B: Backend>(backend: B) {
    let site = Site::new();
    let service = site.serve(backend);
    for round in 0..3 {
        for _ in 0..3 {
            assert_eq!(get(&service, "/new.txt", &[]).await.text(), (404, ""));
        }
        let text = format!("round {round}");
        site.write("new.txt", text.as_bytes());
        for _ in 0..3 {
            assert_eq!(get(&service, "/new.txt", &[]).await.text(), (200, &*text));
        }
        std::fs::remove_file(site.path("new.txt")).unwrap();
    }
}
