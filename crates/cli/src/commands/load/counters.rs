//! Flags by which a load run reads the counters of the server's host.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use std::path::PathBuf;

use clap::Args;
use horolog_counters::Token;
use horolog_http::Url;
use horolog_load::remote_counters::RemoteCounterOptions;

use crate::failure::CommandFailure;

/// Remote counters of the server's host.
#[derive(Args, Debug, Default)]
pub(crate) struct RemoteCounterArgs {
    /// URL of 'horolog counters' on the server's host, such as http://192.0.2.1:9323; read before
    /// and after each trial to locate losses.
    #[arg(long, value_name = "URL", requires = "counters_token_file", value_parser = url)]
    counters: Option<Url>,
    /// File with the token for these counters.
    #[arg(long, value_name = "FILE", requires = "counters")]
    counters_token_file: Option<PathBuf>,
}

fn url(text: &str) -> Result<Url, String> {
    text.parse().map_err(|error: horolog_http::UrlError| error.to_string())
}

impl RemoteCounterArgs {
    pub(crate) fn resolve(self) -> Result<Option<RemoteCounterOptions>, CommandFailure> {
        let (Some(url), Some(file)) = (self.counters, self.counters_token_file) else {
            return Ok(None);
        };
        let token = Token::load(&file).map_err(CommandFailure::usage)?;
        Ok(Some(RemoteCounterOptions { url, token }))
    }
}
