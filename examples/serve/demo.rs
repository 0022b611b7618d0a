//! `--demo`: latencies of cached and uncached files, with nowait and with tokio::fs, as a page that renews
//! itself.
//!
//! A turn of nowait and a turn of tokio::fs alternate, so that neither disturbs the other. In each turn, some
//! tasks request cached files at a low rate, and others read uncached files as fast as the disk allows. The
//! requests go to `ServeDir` directly, without a network.

mod files;
mod load;

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::Response;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use serde_json::{Value, json};
use tokio::time::MissedTickBehavior;
use tower_http::services::ServeDir;

use crate::Body;
use load::Latencies;

/// The time from one pair of turns to the next.
const INTERVAL: Duration = Duration::from_secs(1);

/// The number of results that are kept: the page shows so many seconds.
const KEPT: usize = 90;

/// The results of the last turns.
pub struct Demo {
    results: Mutex<VecDeque<Value>>,
}

impl Demo {
    /// Makes the files in a directory, and begins to request them.
    pub fn start(root: &Path) -> io::Result<Arc<Demo>> {
        files::make(root)?;
        let demo = Arc::new(Demo {
            results: Mutex::default(),
        });
        tokio::spawn(demo.clone().run(root.to_owned()));
        Ok(demo)
    }

    async fn run(self: Arc<Demo>, root: PathBuf) {
        let mut ticks = tokio::time::interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        for number in 0u64.. {
            ticks.tick().await;
            match pair(&root).await {
                Ok([nowait, tokio]) => {
                    let result = json!({
                        "number": number,
                        "nowait": nowait.to_json(),
                        "tokio": tokio.to_json(),
                    });
                    let mut results = self.results.lock().unwrap_or_else(PoisonError::into_inner);
                    results.push_back(result);
                    let surplus = results.len().saturating_sub(KEPT);
                    results.drain(..surplus);
                }
                Err(error) => eprintln!("serve: demo: {error}"),
            }
        }
    }

    /// The page, or its figures. `None` for other paths.
    pub fn respond(&self, path: &str) -> Option<Response<Body>> {
        let (kind, text) = match path {
            "/demo" => (
                "text/html; charset=utf-8",
                include_str!("demo/page.html").into(),
            ),
            "/demo/latency.json" => {
                let results = self.results.lock().unwrap_or_else(PoisonError::into_inner);
                let figures = json!({ "kept": KEPT, "results": &*results });
                ("application/json", figures.to_string())
            }
            _ => return None,
        };
        let body = Full::from(text).map_err(|never| match never {});
        let mut response = Response::new(body.boxed_unsync());
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        Some(response)
    }
}

/// A turn of each backend: nowait's, then tokio's.
async fn pair(root: &Path) -> io::Result<[Latencies; 2]> {
    files::prepare(root).await?;
    let nowait = load::turn(nowait_serve_dir::serve_dir(root)).await?;
    files::prepare(root).await?;
    let tokio = load::turn(ServeDir::new(root)).await?;
    Ok([nowait, tokio])
}
