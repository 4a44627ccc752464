//! The flags by which a load run reads the counters of the server's machine.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use std::path::PathBuf;

use clap::Args;
use horolog_counters::Token;
use horolog_http::Url;
use horolog_load::page::PageOptions;

use crate::failure::Failure;

/// Where the counters of the server's machine are.
#[derive(Args, Debug, Default)]
pub(crate) struct PageArgs {
    /// Page of the server's machine that 'horolog counters' serves there, such as
    /// http://192.0.2.1:9323; read before and after each trial to tell where losses were.
    #[arg(long, value_name = "URL", requires = "counters_token_file", value_parser = url)]
    counters: Option<Url>,
    /// File with the token of that page.
    #[arg(long, value_name = "FILE", requires = "counters")]
    counters_token_file: Option<PathBuf>,
}

fn url(text: &str) -> Result<Url, String> {
    text.parse().map_err(|error: horolog_http::UrlError| error.to_string())
}

impl PageArgs {
    pub(crate) fn resolve(self) -> Result<Option<PageOptions>, Failure> {
        let (Some(url), Some(file)) = (self.counters, self.counters_token_file) else {
            return Ok(None);
        };
        let token = Token::load(&file).map_err(Failure::usage)?;
        Ok(Some(PageOptions { url, token }))
    }
}
