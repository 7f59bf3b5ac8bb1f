/* Buttons for security keys and passkeys (data-passkey) come disabled: django-allauth gives them their meaning when the
   document is complete, and a click before that would be lost, or would send an empty form. */

function enableButtons() {
  for (const button of document.querySelectorAll("button[data-passkey]")) {
    // Browsers have the interface in secure contexts only.
    if ("PublicKeyCredential" in window) button.disabled = false;
    else button.after(createNote());
  }
}

function createNote() {
  const paragraph = document.createElement("p");
  paragraph.className = "quiet";
  paragraph.textContent = "Security keys and passkeys need HTTPS. Open this page by its https:// address.";
  return paragraph;
}

// Modules run after classic scripts, so this listener is called after that of django-allauth's script.
document.addEventListener("DOMContentLoaded", enableButtons);
