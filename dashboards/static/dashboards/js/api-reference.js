/* The API reference: Swagger UI follows the theme of the page. */

import { isDark } from "./page.js";

function showTheme() {
  document.documentElement.classList.toggle("dark-mode", isDark());
}

document.addEventListener("themechange", showTheme);
showTheme();
