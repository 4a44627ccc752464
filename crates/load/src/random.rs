//! Random numbers: a fast, seeded, repeatable generator for spacing, and the random key of a run.
//! Not for secrets.

use std::fs::File;
use std::io::{self, Read as _};

pub use horolog_time::SplitMix64;

/// Returns eight bytes from the kernel's random number generator, for the key of a run.
pub fn key_from_kernel() -> io::Result<u64> {
    let mut bytes = [0; 8];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(u64::from_ne_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_differ() {
        assert_ne!(key_from_kernel().unwrap(), key_from_kernel().unwrap());
    }
}
