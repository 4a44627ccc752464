//! Shared parts of several tests: certificates of their own, and cookies that reveal their content.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rcgen::{CertificateParams, KeyPair};
use tempfile::TempDir;

use crate::{
    AES_128_GCM_SIV, AES_SIV_CMAC_256, CookieProvider, NtsKeConfig, NtsKeServer, TrustAnchors,
};

/// Timeout above the duration of any operation that must succeed.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// Self-signed certificate of a test with its key, in files.
pub(crate) struct TestCertificate {
    directory: TempDir,
}

impl TestCertificate {
    pub(crate) fn new() -> Self {
        let identity = Self { directory: TempDir::new().unwrap() };
        identity.renew();
        identity
    }

    /// Writes another certificate and key to the files.
    pub(crate) fn renew(&self) {
        self.write(&parameters(), &KeyPair::generate().unwrap());
    }

    pub(crate) fn write(&self, parameters: &CertificateParams, key: &KeyPair) {
        let certificate = parameters.self_signed(key).unwrap();
        fs::write(self.certificate(), certificate.pem()).unwrap();
        fs::write(self.key(), key.serialize_pem()).unwrap();
    }

    pub(crate) fn certificate(&self) -> PathBuf {
        self.directory.path().join("certificate.pem")
    }

    pub(crate) fn key(&self) -> PathBuf {
        self.directory.path().join("key.pem")
    }

    /// Trust in the current content of the file.
    pub(crate) fn trust(&self) -> TrustAnchors {
        TrustAnchors::from_pem_file(Some(&self.certificate())).unwrap()
    }

    /// A configuration without limits for one address, the basis of all tests.
    pub(crate) fn config(&self) -> NtsKeConfig {
        let mut config = NtsKeConfig::new(loopback(), self.certificate(), self.key());
        config.threads = 2;
        config.limits.connections_per_prefix = 0;
        config.limits.rate_per_prefix = 0;
        config.limits.timeout = TEST_TIMEOUT;
        config
    }

    pub(crate) fn serve(&self) -> NtsKeServer {
        NtsKeServer::start(self.config(), Arc::new(PlaintextCookieProvider)).unwrap()
    }
}

pub(crate) fn parameters() -> CertificateParams {
    CertificateParams::new(["localhost".into(), "127.0.0.1".into()]).unwrap()
}

pub(crate) fn loopback() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

/// Provider of unencrypted cookies.
pub(crate) struct PlaintextCookieProvider;

impl CookieProvider for PlaintextCookieProvider {
    fn algorithms(&self) -> Vec<u16> {
        vec![AES_128_GCM_SIV, AES_SIV_CMAC_256]
    }

    fn cookies(&self, algorithm: u16, c2s: &[u8], s2c: &[u8], count: usize) -> Vec<Vec<u8>> {
        (0..count as u8).map(|number| cookie(algorithm, c2s, s2c, number)).collect()
    }
}

pub(crate) fn cookie(algorithm: u16, c2s: &[u8], s2c: &[u8], number: u8) -> Vec<u8> {
    [&algorithm.to_be_bytes(), c2s, s2c, &[number]].concat()
}
