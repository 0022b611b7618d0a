//! The two stores, and a session with one of them.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use datafusion::prelude::{ParquetReadOptions, SessionConfig, SessionContext};
use nowait::Engine;
use nowait_object_store::v0_13::NowaitFileSystem;
use object_store::ObjectStore;
use object_store::local::LocalFileSystem;
use url::Url;

use crate::tables::{TABLES, file};

/// The stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Store {
    Local,
    Nowait,
}

impl Store {
    pub const ALL: [Store; 2] = [Store::Local, Store::Nowait];

    fn make(self, engine: &Engine) -> Arc<dyn ObjectStore> {
        match self {
            Store::Local => Arc::new(LocalFileSystem::new()),
            Store::Nowait => Arc::new(NowaitFileSystem::new().with_engine(engine)),
        }
    }

    /// A new session with this store, and with the tables.
    pub async fn session(
        self,
        engine: &Engine,
        dir: &Path,
        partitions: usize,
    ) -> Result<SessionContext, Box<dyn Error>> {
        let config = SessionConfig::new().with_target_partitions(partitions);
        let session = SessionContext::new_with_config(config);
        session.register_object_store(&Url::parse("file:///")?, self.make(engine));
        for table in TABLES {
            let path = file(dir, table);
            let path = path.to_str().ok_or("the path is not UTF-8")?;
            let options = ParquetReadOptions::default();
            session.register_parquet(table, path, options).await?;
        }
        Ok(session)
    }
}
