//! A cluster: a scheduler and executors, which are processes of this program, and the sessions of a client.
//!
//! Scheduler, executors and client use the same store for `file://` URLs.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ballista::prelude::{SessionConfigExt, SessionContextExt};
use ballista_core::utils::default_session_builder;
use ballista_executor::executor_process::{ExecutorProcessConfig, start_executor_process};
use ballista_scheduler::cluster::BallistaCluster;
use ballista_scheduler::config::SchedulerConfig;
use ballista_scheduler::scheduler_process::start_server;
use clap::{Args, ValueEnum};
use datafusion::execution::SessionState;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::prelude::{ParquetReadOptions, SessionConfig, SessionContext};
use nowait_object_store::v0_13::NowaitFileSystem;
use object_store::ObjectStore;
use object_store::local::LocalFileSystem;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use crate::tables::{TABLES, file};

/// The number of executors of a cluster.
const EXECUTORS: u16 = 2;

/// The store that reads the tables.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Store {
    Local,
    Nowait,
}

impl Store {
    pub fn name(self) -> &'static str {
        match self {
            Store::Local => "local",
            Store::Nowait => "nowait",
        }
    }

    fn object_store(self, nowait: &NowaitFileSystem) -> Arc<dyn ObjectStore> {
        match self {
            Store::Local => Arc::new(LocalFileSystem::new()),
            Store::Nowait => Arc::new(nowait.clone()),
        }
    }

    /// The state of a session of the client or of the scheduler.
    fn session_state(self, config: SessionConfig) -> datafusion::error::Result<SessionState> {
        let state = default_session_builder(config)?;
        register(
            state.runtime_env(),
            self.object_store(&NowaitFileSystem::new()),
        );
        Ok(state)
    }
}

/// Makes a store that of `file://` URLs.
fn register(runtime: &RuntimeEnv, store: Arc<dyn ObjectStore>) {
    let url = ObjectStoreUrl::local_filesystem();
    runtime.register_object_store(url.as_ref(), store);
}

/// Runs a scheduler.
pub async fn scheduler(store: Store, port: u16) -> Result<(), Box<dyn Error>> {
    let config = SchedulerConfig {
        bind_port: port,
        min_ready_executors: EXECUTORS.into(),
        override_session_builder: Some(Arc::new(move |config| store.session_state(config))),
        ..SchedulerConfig::default()
    };
    let cluster = BallistaCluster::new_from_config(&config).await?;
    let address = format!("{}:{port}", config.bind_host).parse()?;
    Ok(start_server(cluster, address, Arc::new(config)).await?)
}

/// The arguments of an executor.
#[derive(Args)]
pub struct Executor {
    /// The store that reads the tables
    #[arg(long)]
    store: Store,

    /// The ports that the executor listens on: this one and the next
    #[arg(long, value_name = "N", default_value_t = 50051,
          value_parser = clap::value_parser!(u16).range(1..65535))]
    port: u16,

    /// The port of the scheduler
    #[arg(long, value_name = "N", default_value_t = 50050)]
    scheduler_port: u16,

    /// How many tasks run at the same time
    #[arg(long, value_name = "N", default_value_t = 1)]
    tasks: usize,

    /// The directory of the data between stages
    #[arg(long, value_name = "PATH")]
    work_dir: PathBuf,
}

impl Executor {
    /// Runs an executor until SIGINT or SIGTERM. Then it prints the reads of the store.
    pub async fn run(self) -> Result<(), Box<dyn Error>> {
        let nowait = NowaitFileSystem::new();
        let store = self.store.object_store(&nowait);
        let work_dir = self.work_dir.to_str().ok_or("the path is not UTF-8")?;
        let temporary = work_dir.to_owned();
        let config = ExecutorProcessConfig {
            port: self.port,
            grpc_port: self.port + 1,
            scheduler_port: self.scheduler_port,
            scheduler_connect_timeout_seconds: 30,
            vcores: self.tasks,
            work_dir: Some(work_dir.to_owned()),
            // Each session of a client has a RuntimeEnv of its own. All have the same store.
            override_runtime_producer: Some(Arc::new(move |_| {
                let runtime = RuntimeEnvBuilder::new()
                    .with_temp_file_path(&temporary)
                    .build_arc()?;
                register(&runtime, store.clone());
                Ok(runtime)
            })),
            ..ExecutorProcessConfig::default()
        };
        start_executor_process(Arc::new(config)).await?;
        if let Store::Nowait = self.store {
            let stats = nowait.stats();
            println!(
                "executor {}: {} reads from the page cache, {} others",
                self.port, stats.hits, stats.misses
            );
        }
        Ok(())
    }
}

/// A scheduler and its executors, as child processes. They are killed, and their data removed, when the value is dropped.
pub struct Cluster {
    store: Store,
    port: u16,
    partitions: usize,
    scheduler: Child,
    executors: Vec<Child>,
    work_dir: TempDir,
}

impl Cluster {
    /// Starts the processes, and waits until the executors have registered with the scheduler.
    pub async fn start(store: Store, port: u16, dir: &Path) -> Result<Cluster, Box<dyn Error>> {
        let processors = std::thread::available_parallelism()?.get();
        let tasks = processors.div_ceil(EXECUTORS.into());
        let work_dir = tempfile::Builder::new().prefix("work-").tempdir_in(dir)?;
        let program = |verb: &str, port: u16| -> std::io::Result<Command> {
            let mut command = Command::new(std::env::current_exe()?);
            command.args([verb, "--store", store.name(), "--port", &port.to_string()]);
            command.kill_on_drop(true);
            Ok(command)
        };
        let scheduler = program("scheduler", port)?.spawn()?;
        let mut executors = Vec::new();
        for number in 0..EXECUTORS {
            let mut executor = program("executor", port + 1 + 2 * number)?;
            executor.args(["--scheduler-port", &port.to_string()]);
            executor.args(["--tasks", &tasks.to_string(), "--work-dir"]);
            executor.arg(work_dir.path().join(number.to_string()));
            executors.push(executor.spawn()?);
        }
        let mut cluster = Cluster {
            store,
            port,
            partitions: tasks * usize::from(EXECUTORS),
            scheduler,
            executors,
            work_dir,
        };
        loop {
            tokio::time::sleep(Duration::from_millis(100)).await;
            let children = cluster.executors.iter_mut().chain([&mut cluster.scheduler]);
            for child in children {
                if let Some(status) = child.try_wait()? {
                    return Err(format!("a process of the cluster ended: {status}").into());
                }
            }
            if is_ready(port).await {
                return Ok(cluster);
            }
        }
    }

    /// A new session of a client, with the tables.
    pub async fn session(&self, dir: &Path) -> Result<SessionContext, Box<dyn Error>> {
        let config = SessionConfig::new_with_ballista().with_target_partitions(self.partitions);
        let state = self.store.session_state(config)?;
        let url = format!("df://localhost:{}", self.port);
        let session = SessionContext::remote_with_state(&url, state).await?;
        for table in TABLES {
            let path = file(dir, table);
            let path = path.to_str().ok_or("the path is not UTF-8")?;
            let options = ParquetReadOptions::default();
            session.register_parquet(table, path, options).await?;
        }
        Ok(session)
    }

    /// Stops the executors, which print the reads of their stores, and the scheduler.
    pub async fn stop(mut self) -> Result<(), Box<dyn Error>> {
        for executor in &mut self.executors {
            let pid = executor.id().and_then(|pid| Pid::from_raw(pid as i32));
            kill_process(pid.ok_or("an executor has ended")?, Signal::TERM)?;
            executor.wait().await?;
        }
        self.scheduler.kill().await?;
        Ok(self.work_dir.close()?)
    }
}

/// True if the scheduler has its executors.
async fn is_ready(port: u16) -> bool {
    let answer = async {
        let mut stream = TcpStream::connect(("localhost", port)).await?;
        stream.write_all(b"GET /readyz HTTP/1.0\r\n\r\n").await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok::<_, std::io::Error>(answer)
    };
    answer.await.is_ok_and(|answer| answer.contains(" 200 "))
}
