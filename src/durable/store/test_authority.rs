//! [`TestAuthority`]: an authority that signs the certificate of the servers of a test.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// The settings of `openssl`. The certificate is valid for the name `db.example`, and for this machine.
const SETTINGS: &str = "[req]\ndistinguished_name = name\nprompt = no\n[name]\nCN = NAME\n\
    [authority]\nbasicConstraints = critical,CA:TRUE\n\
    [server]\nsubjectAltName = DNS:db.example,IP:127.0.0.1\n";

/// An authority, with the certificate of a server that it has signed.
pub(super) struct TestAuthority(TempDir);

impl TestAuthority {
    pub(super) fn new() -> Self {
        let authority = Self(tempfile::tempdir().expect("a folder can be made"));
        let name = authority
            .folder()
            .file_name()
            .expect("the folder has a name");
        let settings = SETTINGS.replace("NAME", &name.to_string_lossy());
        fs::write(authority.file("settings"), settings).expect("a file can be written");
        authority.sign("authority", &[]);
        let [certificate, key] = authority.files("authority");
        authority.sign(
            "server",
            &[Path::new("-CA"), &certificate, Path::new("-CAkey"), &key],
        );
        authority
    }

    pub(super) fn folder(&self) -> &Path {
        self.0.path()
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder().join(name)
    }

    /// Returns the paths of a certificate, of the authority or of the server, and of its key.
    pub(super) fn files(&self, name: &str) -> [PathBuf; 2] {
        ["crt", "key"].map(|kind| self.file(&format!("{name}.{kind}")))
    }

    /// Makes a certificate, which is signed with its own key unless `by` names another one.
    fn sign(&self, name: &str, by: &[&Path]) {
        let [certificate, key] = self.files(name);
        let mut openssl = Command::new("openssl");
        openssl
            .args(["req", "-x509", "-nodes", "-days", "2", "-newkey", "ec"])
            .args([
                "-pkeyopt",
                "ec_paramgen_curve:prime256v1",
                "-extensions",
                name,
                "-config",
            ])
            .arg(self.file("settings"))
            .arg("-keyout")
            .arg(key)
            .arg("-out")
            .arg(certificate)
            .args(by);
        let made = openssl.output();
        let made = made.expect("this test needs openssl: on Debian, `apt-get install openssl`");
        assert!(made.status.success(), "{made:?}");
    }
}
