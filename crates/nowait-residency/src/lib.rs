//! Facts about memory that this process may use: the limits of its control groups.
//!
//! ```
//! let groups = nowait_residency::cgroup::Groups::of_this_process();
//! match groups.limit() {
//!     Some(bytes) => println!("at most {bytes} bytes"),
//!     None => println!("no control group limits the memory"),
//! }
//! ```

pub mod cgroup;
pub mod proc;
