"""A report as one HTML file that needs nothing else: `topotune.report.html.page.render_page`."""
