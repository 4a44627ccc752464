//! Keeping the processors out of deep idle states: `/dev/cpu_dma_latency` (Linux,
//! `Documentation/power/pm_qos_interface.rst`). What is asked for holds while the file is open, so
//! it goes with the process however that ends.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

const PATH: &str = "/dev/cpu_dma_latency";

/// A longest wake-up time from idle states that is asked for; dropping it takes that back.
#[derive(Debug)]
pub struct HeldLatency {
    _file: File,
}

impl HeldLatency {
    /// Asks that no idle state be entered that takes longer to leave than `latency_us`; 0 leaves
    /// nothing but polling.
    ///
    /// # Errors
    ///
    /// Where the file is not there or may not be written, which takes root.
    pub fn hold(latency_us: i32) -> io::Result<Self> {
        Self::hold_at(Path::new(PATH), latency_us)
    }

    fn hold_at(path: &Path, latency_us: i32) -> io::Result<Self> {
        let mut file = OpenOptions::new().write(true).open(path)?;
        file.write_all(&latency_us.to_ne_bytes())?;
        Ok(Self { _file: file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_bytes_are_written_and_a_missing_file_is_an_error() {
        HeldLatency::hold_at(Path::new("/dev/null"), 7).unwrap();
        let missing = HeldLatency::hold_at(Path::new("/nowhere/at/all"), 0).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }
}
