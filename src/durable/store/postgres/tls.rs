//! [`Encryption`]: how connections are encrypted, and which servers are trusted.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ConfigBuilder, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    WantsVerifier,
};
use tokio_postgres::config::SslMode;
use tokio_postgres_rustls::MakeRustlsConnect;

/// The protocol that a server expects if the negotiation begins with TLS: `sslnegotiation=direct`.
const PROTOCOL: &[u8] = b"postgresql";

/// The encryption of connections.
#[derive(Clone)]
pub(super) struct Encryption(pub(super) MakeRustlsConnect);

impl Encryption {
    /// Returns the encryption that a mode asks for, or `None` if connections are not encrypted. `root_file` contains the certificates of
    /// the authorities that are trusted, instead of those that the system trusts.
    ///
    /// # Errors
    ///
    /// Returns the reason if the certificates of the authorities cannot be read, or would not be used.
    pub(super) fn new(mode: SslMode, root_file: Option<&str>) -> Result<Option<Self>, String> {
        let verifies = match mode {
            SslMode::Disable => None,
            SslMode::Prefer => Some(false),
            _ => Some(true),
        };
        if root_file.is_some() && verifies != Some(true) {
            return Err(String::from(
                "`sslrootcert` is only used with `sslmode=verify-full`: add that",
            ));
        }
        let Some(verifies) = verifies else {
            return Ok(None);
        };
        let mut config = match verifies {
            true => trusting(roots(root_file)?)?,
            false => trusting_all()?,
        };
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        Ok(Some(Self(MakeRustlsConnect::new(config))))
    }
}

/// Trusts servers whose certificate is valid for their name, and signed by one of these authorities.
fn trusting(roots: RootCertStore) -> Result<ClientConfig, String> {
    let config = with_provider(&provider())?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

/// Trusts all servers. Somebody who can change the traffic can also prevent the encryption, so certificates would not help.
fn trusting_all() -> Result<ClientConfig, String> {
    let provider = provider();
    let config = with_provider(&provider)?.dangerous();
    let config = config.with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)));
    Ok(config.with_no_client_auth())
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn with_provider(
    provider: &Arc<CryptoProvider>,
) -> Result<ConfigBuilder<ClientConfig, WantsVerifier>, String> {
    let config = ClientConfig::builder_with_provider(Arc::clone(provider));
    let config = config.with_safe_default_protocol_versions();
    config.map_err(|error| error.to_string())
}

/// Reads the certificates of authorities: those in the file, or those that the system trusts.
fn roots(file: Option<&str>) -> Result<RootCertStore, String> {
    let certificates = match file {
        Some(file) => in_file(file)?,
        None => rustls_native_certs::load_native_certs().certs,
    };
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(certificates);
    match (roots.is_empty(), file) {
        (false, _) => Ok(roots),
        (true, Some(file)) => Err(format!("the file {file:?} contains no certificate")),
        (true, None) => Err(String::from(
            "the system has no certificates of authorities: install them, or name a file with `sslrootcert`",
        )),
    }
}

fn in_file(file: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let unreadable = |error| format!("the certificates in {file:?} cannot be read: {error}");
    let certificates = CertificateDer::pem_file_iter(file).map_err(unreadable)?;
    certificates.collect::<Result<_, _>>().map_err(unreadable)
}

/// Accepts each certificate whose owner has signed the handshake.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
