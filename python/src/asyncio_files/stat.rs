//! The request for the metadata of a path or of an open file.

use nowait::Engine;
use nowait::op::Statx;

use super::in_engine::EngineRequest;
use super::operation::{Arguments, Request};
use crate::error::library_error;
use crate::stat_result::stat_result;

/// The request for os.stat_result. An exception has the file name.
pub fn stat_request(statx: Statx, filename: Arguments) -> impl Request + 'static {
    let stat = async move |engine: Engine| {
        if let Some(cached) = statx.try_cached() {
            return cached;
        }
        engine.spawn_blocking(move || statx.blocking()).await?
    };
    EngineRequest::new(filename, stat, |py, kept, stat| {
        let metadata = stat.map_err(|error| library_error(py, &error, &kept.path(py)))?;
        stat_result(py, &metadata)
    })
}
