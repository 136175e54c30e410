//! The pages in a real browser: Chromium, which ChromeDriver drives. `scripts/test-web` installs both, and axe-core.

#[path = "browser/actions.rs"]
mod actions;
#[path = "dashboard/crash.rs"]
mod crash;
#[path = "browser/driver.rs"]
mod driver;
#[path = "browser/hostile.rs"]
mod hostile;
#[path = "browser/hostile_pages.rs"]
mod hostile_pages;
#[path = "browser/keyboard.rs"]
mod keyboard;
#[path = "browser/live.rs"]
mod live;
#[path = "browser/pages.rs"]
mod pages;
#[path = "browser/picture.rs"]
mod picture;
#[path = "browser/proxies.rs"]
mod proxies;
#[path = "browser/site.rs"]
mod site;

#[test]
fn chromedriver_is_installed() {
    let program = driver::program();
    let output = std::process::Command::new(&program)
        .arg("--version")
        .output();
    assert!(
        output.is_ok_and(|output| output.status.success()),
        "{} does not run: install the packages `chromium` and `chromium-driver`, or set THRONG_CHROMEDRIVER. \
        The other tests of the browser are skipped",
        program.display()
    );
}
