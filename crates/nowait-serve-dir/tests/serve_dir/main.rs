//! Everything that `ServeDir` documents, on tokio's backend and on nowait's: the same tests run on both.

mod at_once;
mod calls;
mod changes;
mod limits;
mod paths;
mod responses;
mod same;
mod site;

/// Makes two tests of each function, in a module for each backend. The function gets the backend.
macro_rules! on_both {
    ($($name:ident)*) => {
        mod on_tokio {
            $(#[tokio::test]
            async fn $name() {
                super::$name(tower_http::services::fs::TokioBackend).await;
            })*
        }
        mod on_nowait {
            $(#[tokio::test]
            async fn $name() {
                super::$name(nowait_serve_dir::NowaitBackend::new()).await;
            })*
        }
    };
}
use on_both;
