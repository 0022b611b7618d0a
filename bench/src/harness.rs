//! The parts that areas share: plans and rounds, the state of the page cache, statistics, charts and
//! reports.

pub mod bench;
pub mod cache;
pub mod child;
pub mod class;
pub mod column;
pub mod contender;
pub mod cores;
pub mod delay;
pub mod directory;
pub mod draws;
pub mod files;
pub mod interval;
pub mod latencies;
pub mod machine;
pub mod memory;
pub mod memory_devices;
pub mod offsets;
pub mod output;
pub mod percentiles;
pub mod place;
pub mod plan;
pub mod plot;
pub mod print;
pub mod processes;
pub mod round;
pub mod run;
pub mod scramble;
pub mod settings;
pub mod slow;
pub mod table;
pub mod text;
pub mod tick;
pub mod turn;
pub mod usage;
pub mod view;
