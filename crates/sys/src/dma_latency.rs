//! Limit of the processors' idle states: `/dev/cpu_dma_latency` (Linux,
//! `Documentation/power/pm_qos_interface.rst`). The request holds while the file is open, so it
//! ends with the process in every case.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

const PATH: &str = "/dev/cpu_dma_latency";

/// Request for a longest wake-up time from idle states; dropping it withdraws the request.
#[derive(Debug)]
pub struct DmaLatencyRequest {
    _file: File,
}

impl DmaLatencyRequest {
    /// Excludes idle states that take longer to leave than `latency_us`; 0 leaves nothing but
    /// polling.
    ///
    /// # Errors
    ///
    /// If the file is missing or may not be written, which takes root.
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
        DmaLatencyRequest::hold_at(Path::new("/dev/null"), 7).unwrap();
        let missing = DmaLatencyRequest::hold_at(Path::new("/nowhere/at/all"), 0).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }
}
