//! Limit of the CPU idle states: `/dev/cpu_dma_latency` (Linux,
//! `Documentation/power/pm_qos_interface.rst`). The request is valid while the file is open, so it
//! always ends with the process.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

const PATH: &str = "/dev/cpu_dma_latency";

/// Request for a largest exit latency of idle states; dropping it withdraws the request.
#[derive(Debug)]
pub struct DmaLatencyRequest {
    _file: File,
}

impl DmaLatencyRequest {
    /// Excludes idle states with an exit latency above `latency_us`; 0 leaves only the polling
    /// state.
    ///
    /// # Errors
    ///
    /// If the file is missing or not writable; writing requires root.
    pub fn hold(latency_us: i32) -> io::Result<Self> {
        Self::hold_with_path(Path::new(PATH), latency_us)
    }

    fn hold_with_path(path: &Path, latency_us: i32) -> io::Result<Self> {
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
        DmaLatencyRequest::hold_with_path(Path::new("/dev/null"), 7).unwrap();
        let missing =
            DmaLatencyRequest::hold_with_path(Path::new("/nowhere/at/all"), 0).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }
}
