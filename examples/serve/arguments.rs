//! The command line, and the certificate that it names.

use std::net::SocketAddr;
use std::path::PathBuf;

use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::Error;

const USAGE: &str =
    "usage: serve [--listen ADDRESS:PORT] [--http | --cert FILE --key FILE] [--demo] DIRECTORY";

/// The command line arguments.
pub struct Arguments {
    pub root: PathBuf,
    pub listen: SocketAddr,
    pub demo: bool,
    http: bool,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
}

impl Arguments {
    pub fn parse() -> Result<Arguments, Error> {
        let mut arguments = Arguments {
            root: PathBuf::new(),
            listen: ([127, 0, 0, 1], 8443).into(),
            demo: false,
            http: false,
            certificate: None,
            key: None,
        };
        let mut words = std::env::args_os().skip(1);
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or(USAGE);
            match word.to_str() {
                Some("--listen") => arguments.listen = value()?.to_str().ok_or(USAGE)?.parse()?,
                Some("--demo") => arguments.demo = true,
                Some("--http") => arguments.http = true,
                Some("--cert") => arguments.certificate = Some(value()?.into()),
                Some("--key") => arguments.key = Some(value()?.into()),
                _ if arguments.root.as_os_str().is_empty() => arguments.root = word.into(),
                _ => return Err(USAGE.into()),
            }
        }
        if arguments.demo && !arguments.root.as_os_str().is_empty() {
            std::fs::create_dir_all(&arguments.root)?;
        }
        if !arguments.root.is_dir() {
            return Err(USAGE.into());
        }
        Ok(arguments)
    }

    /// The TLS settings; `None` without TLS.
    pub fn tls(&self) -> Result<Option<ServerConfig>, Error> {
        let (chain, key) = match (&self.certificate, &self.key) {
            (None, None) if self.http => return Ok(None),
            (Some(certificate), Some(key)) if !self.http => {
                let chain =
                    CertificateDer::pem_file_iter(certificate)?.collect::<Result<_, _>>()?;
                (chain, PrivateKeyDer::from_pem_file(key)?)
            }
            (None, None) => {
                let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
                let made = rcgen::generate_simple_self_signed(names)?;
                let key = PrivateKeyDer::try_from(made.signing_key.serialize_der())?;
                (vec![made.cert.der().clone()], key)
            }
            _ => return Err("--cert and --key must be used together, and not with --http".into()),
        };
        let config = ServerConfig::builder().with_no_client_auth();
        Ok(Some(config.with_single_cert(chain, key)?))
    }
}
