//! A controller: it places a plan on the agents that are there, has them start at one instant, and
//! collects what they tell.

mod begin;
mod clocks;
mod conduct;
mod course;
mod give;
mod hearing;
mod ledger;
mod list;
mod look;
mod presence;
mod reader;
mod run;
mod start;
mod step;
mod wait;

pub use ledger::{Heard, Ledger, Standing};
pub use list::{Listed, list};
pub use look::{Look, look};
pub use run::{CampaignError, Collected, ControllerOptions, What, run};
pub use step::Step;
