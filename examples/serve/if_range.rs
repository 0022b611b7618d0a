//! If-Range (RFC 9110, 13.1.5), which `ServeDir` ignores: a client that has a part of a file asks for the
//! rest, or for the whole file if it has changed.

use std::convert::Infallible;

use hyper::header::{CONTENT_RANGE, ETAG, HeaderValue, IF_RANGE, LAST_MODIFIED, RANGE};
use hyper::{Request, Response};
use tower::ServiceExt;
use tower_http::services::fs::ServeFileSystemResponseBody;

use crate::Files;

type Answer = Response<ServeFileSystemResponseBody>;

/// The response to a request. It has a range only if its file is the one that If-Range names.
pub async fn respond(files: Files, mut request: Request<()>) -> Answer {
    let known = request.headers_mut().remove(IF_RANGE);
    let response = call(&files, request.clone()).await;
    match known {
        Some(known) if has_range(&response) && !is_of(&response, &known) => {
            request.headers_mut().remove(RANGE);
            call(&files, request).await
        }
        _ => response,
    }
}

async fn call(files: &Files, request: Request<()>) -> Answer {
    let response: Result<Answer, Infallible> = files.clone().oneshot(request).await;
    let Ok(response) = response;
    response
}

/// Returns true for a part of a file, and for a range that the file does not have.
fn has_range(response: &Answer) -> bool {
    response.headers().contains_key(CONTENT_RANGE)
}

/// Returns true if the client's tag or date is that of the response.
fn is_of(response: &Answer, known: &HeaderValue) -> bool {
    let headers = response.headers();
    [ETAG, LAST_MODIFIED]
        .iter()
        .any(|name| headers.get(name) == Some(known))
}
